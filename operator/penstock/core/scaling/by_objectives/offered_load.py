"""Offered load: the demand of the arrivals so far, as if no request had to wait for a replica.

Answers: an infinite-server queue with time-varying arrivals (Eick, Massey and Whitt, 1993). With stays that
are exponential, the sequences in the system are the exponential mean of the arrival rate over one stay,
times the stay; a burst counts only as far as its answers overlap.

Prompts: the processor-demand criterion (Baruah, Rosier and Howell, 1990). Tokens that arrived in a window
of w seconds are due within w + slack, so that the rate that is due is the largest, over the windows that
end now, of tokens / (w + slack). The longest window counts with its mean rate, which has to be served.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace

from penstock.core.scaling.by_objectives.footprint import Demand, Footprint
from penstock.core.scaling.by_objectives.smoothing import Means, newest_share

# Windows of arrived prompts: the shortest, the factor from one to the next, and the longest in slacks. What
# arrived before has been served or is waiting.
SHORTEST_WINDOW_S, WINDOW_GROWTH, LONGEST_WINDOW_SLACKS = 2.0, 1.6, 8.0


@dataclass(frozen=True, slots=True)
class Arrived:
    """All prompt tokens that had arrived by a time."""

    at_s: float
    prompt_tokens: float


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """Arrivals of one service.

    since_s: time of the first observation; None: there is none. answers: their rate, as the exponential
    mean over one stay. prompt_means, answer_means: of the arrival rates, to forecast with.
    """

    since_s: float | None = None
    arrived: tuple[Arrived, ...] = ()
    answers: float = 0.0
    prompt_means: Means = field(default_factory=Means)
    answer_means: Means = field(default_factory=Means)

    @property
    def at_s(self) -> float:
        """Time of the last observation."""
        return self.arrived[-1].at_s

    @property
    def is_known(self) -> bool:
        """Whether arrivals were observed over some time."""
        return len(self.arrived) > 1

    def after(
        self, now_s: float, arrivals: int, prompt_tokens: int, footprint: Footprint
    ) -> "OfferedLoad":
        """The load with the arrivals since the last observation; those before the first do not count."""
        if self.since_s is None:
            return OfferedLoad(now_s, (Arrived(now_s, 0.0),))
        elapsed_s, age_s = now_s - self.at_s, now_s - self.since_s
        if elapsed_s <= 0:
            return self
        answers, prompts = arrivals / elapsed_s, prompt_tokens / elapsed_s
        share = newest_share(elapsed_s, footprint.stay_s, age_s)
        total = self.arrived[-1].prompt_tokens + prompt_tokens
        return OfferedLoad(
            self.since_s,
            (*self._recent(now_s, footprint.slack_s), Arrived(now_s, total)),
            self.answers + share * (answers - self.answers),
            self.prompt_means.after(prompts, elapsed_s, age_s),
            self.answer_means.after(answers, elapsed_s, age_s),
        )

    def now(self, footprint: Footprint) -> Demand:
        return Demand(self._due_rate(footprint.slack_s), self.answers)

    def ahead(self, forecaster: int, lead_s: float, footprint: Footprint) -> Demand:
        """The demand that a forecaster expects in lead_s. Answers of now go on for their stay."""
        left = math.exp(-lead_s / footprint.stay_s)
        answers = self.answer_means.ahead(forecaster, lead_s)
        return Demand(
            self.prompt_means.ahead(forecaster, lead_s),
            left * self.answers + (1 - left) * answers,
        )

    def scaled(self, factor: float) -> "OfferedLoad":
        """The load if `factor` times as many requests had arrived at each time."""
        return replace(
            self,
            arrived=tuple(Arrived(a.at_s, factor * a.prompt_tokens) for a in self.arrived),
            answers=factor * self.answers,
            prompt_means=self.prompt_means.scaled(factor),
            answer_means=self.answer_means.scaled(factor),
        )

    def _due_rate(self, slack_s: float) -> float:
        """Prompt tokens per second that are due, over the windows that end now."""
        now, window_s = self.arrived[-1], SHORTEST_WINDOW_S
        longest_s = min(LONGEST_WINDOW_SLACKS * slack_s, now.at_s - self.arrived[0].at_s)
        due = 0.0
        while True:
            index = bisect_right(self.arrived, now.at_s - window_s, key=_time) - 1
            then = self.arrived[max(0, min(index, len(self.arrived) - 2))]
            taken_s, tokens = now.at_s - then.at_s, now.prompt_tokens - then.prompt_tokens
            if window_s >= longest_s:
                return max(due, tokens / taken_s)
            due = max(due, tokens / (taken_s + slack_s))
            window_s *= WINDOW_GROWTH

    def _recent(self, now_s: float, slack_s: float) -> tuple[Arrived, ...]:
        oldest_s = now_s - WINDOW_GROWTH * LONGEST_WINDOW_SLACKS * slack_s
        return self.arrived[max(0, bisect_right(self.arrived, oldest_s, key=_time) - 1) :]


def _time(arrived: Arrived) -> float:
    return arrived.at_s
