"""Arrivals of requests: their cumulative counts, and the mean rates since the rate last changed.

The window of the mean grows backwards from now, as long as its older part differs from the newer one by no
more than chance (change detection with an adaptive window, as ADWIN: Bifet and Gavaldà, 2007). So a step is
followed as soon as it stands out of the noise, and a level that lasts is averaged over minutes. The noise is
measured: the dispersion is the variance of the arriving work over that of a Poisson process.
"""

from dataclasses import dataclass, replace

from penstock.core.scaling.by_objectives.history import index_at
from penstock.core.scaling.learned.footprint import Demand, Footprint

# Windows: the shortest and longest of a steady rate, and the factor from one window to the next.
SHORTEST_STEADY_S, LONGEST_STEADY_S, WINDOW_GROWTH = 10.0, 640.0, 1.5
# Standard deviations between two windows that are a change of the rate.
CHANGE = 3.3
# Dispersion before any was measured: sessions and retries bring requests in groups.
PRIOR_DISPERSION = 2.0


@dataclass(frozen=True, slots=True)
class Arrived:
    """Cumulative arrivals at a time. replica_s: the time for which their work keeps one replica busy."""

    at_s: float
    prompt_tokens: float = 0.0
    requests: float = 0.0
    replica_s: float = 0.0

    def scaled(self, factor: float) -> "Arrived":
        return Arrived(
            self.at_s,
            factor * self.prompt_tokens,
            factor * self.requests,
            factor * self.replica_s,
        )


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrivals of the last minutes. dispersion: variance of their work over that of Poisson arrivals."""

    history: tuple[Arrived, ...] = ()
    dispersion: float = PRIOR_DISPERSION

    @property
    def now(self) -> Arrived:
        return self.history[-1]

    def updated(
        self, now_s: float, requests: int, prompt_tokens: int, footprint: Footprint, kept_s: float
    ) -> "Arrivals":
        """Add the arrivals since the last observation. kept_s: least time for which the history is kept."""
        elapsed_s, demand = now_s - self.now.at_s, Demand(prompt_tokens, requests)
        newest = Arrived(
            now_s,
            self.now.prompt_tokens + prompt_tokens,
            self.now.requests + requests,
            self.now.replica_s + footprint.replicas(demand),
        )
        kept_s = max(kept_s, WINDOW_GROWTH * LONGEST_STEADY_S)
        oldest = index_at(self.history, now_s - kept_s)
        found = replace(self, history=(*self.history[oldest:], newest))
        return replace(found, dispersion=found._dispersion(elapsed_s))

    def steady_rates(self) -> Demand:
        """The mean rates since the rate last changed."""
        then = self._last_change()
        taken_s = max(1e-9, self.now.at_s - then.at_s)
        return Demand(
            (self.now.prompt_tokens - then.prompt_tokens) / taken_s,
            (self.now.requests - then.requests) / taken_s,
        )

    def due_rate(self, slack_s: float, longest_s: float) -> float:
        """Prompt tokens per second that are due, over the windows up to longest_s that end now."""
        now, due = self.now, 0.0
        window_s = now.at_s - self._ago(0.0).at_s
        longest_s = min(longest_s, now.at_s - self.history[0].at_s)
        while True:
            then = self._ago(window_s)
            taken_s, tokens = now.at_s - then.at_s, now.prompt_tokens - then.prompt_tokens
            if window_s >= longest_s:
                return max(due, tokens / max(1e-9, taken_s))
            due = max(due, tokens / (taken_s + slack_s))
            window_s *= WINDOW_GROWTH

    def scaled(self, factor: float) -> "Arrivals":
        """The arrivals if `factor` times as many requests had come at each time."""
        history = tuple(each.scaled(factor) for each in self.history)
        return Arrivals(history, factor * self.dispersion)

    def _last_change(self) -> Arrived:
        """The observation since which the rate has not changed by more than chance."""
        now, newer = self.now, self._ago(SHORTEST_STEADY_S)
        while now.at_s - newer.at_s < LONGEST_STEADY_S:
            older = self._ago(WINDOW_GROWTH * max(now.at_s - newer.at_s, SHORTEST_STEADY_S))
            if older.at_s >= newer.at_s or self._differ(older, newer):
                break
            newer = older
        return newer

    def _differ(self, older: Arrived, newer: Arrived) -> bool:
        """Whether the rate from `older` to `newer` differs from the rate from `newer` to now."""
        return self._surprise(older, newer) > CHANGE**2 * self.dispersion

    def _dispersion(self, elapsed_s: float) -> float:
        """Update the dispersion by the change of the rate between the last two windows."""
        middle = self._ago(SHORTEST_STEADY_S)
        first = self._ago(self.now.at_s - middle.at_s + SHORTEST_STEADY_S)
        is_short = middle.at_s - first.at_s < 0.7 * SHORTEST_STEADY_S
        if is_short or self.now.replica_s <= first.replica_s:
            return self.dispersion
        # A change of the rate is not noise.
        found = min(self._surprise(first, middle), CHANGE**2 * self.dispersion)
        share = min(elapsed_s, SHORTEST_STEADY_S) / LONGEST_STEADY_S
        # Less than Poisson's is measured by chance where few requests come.
        return max(1.0, self.dispersion + share * (found - self.dispersion))

    def _surprise(self, older: Arrived, newer: Arrived) -> float:
        """Squared change of the rate at `newer`, over its variance if requests came one by one (Poisson)."""
        now = self.now
        before_s, after_s = newer.at_s - older.at_s, now.at_s - newer.at_s
        before = (newer.replica_s - older.replica_s) / before_s
        after = (now.replica_s - newer.replica_s) / after_s
        mean = (now.replica_s - older.replica_s) / (now.at_s - older.at_s)
        variance = mean * self._request_replica_s() * (1 / before_s + 1 / after_s)
        return (after - before) ** 2 / variance if variance > 0 else 0.0

    def _request_replica_s(self) -> float:
        """Mean time for which a request keeps one replica busy."""
        first, now = self.history[0], self.now
        requests = now.requests - first.requests
        return (now.replica_s - first.replica_s) / requests if requests > 0 else 0.0

    def _ago(self, age_s: float) -> Arrived:
        """The newest observation that is at least age_s old, without the last one; else the oldest."""
        index = index_at(self.history, self.now.at_s - age_s)
        return self.history[max(0, min(index, len(self.history) - 2))]
