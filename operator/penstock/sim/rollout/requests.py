"""Draws the requests of one side of a canary in bulk."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.sim.rollout.growth import Growth
from penstock.sim.rollout.scenario import Scenario

Floats = NDArray[np.float64]

MEDIAN_TTFT_S, MEDIAN_TPOT_S = 0.3, 0.03
MEDIAN_PROMPT_TOKENS, MEDIAN_OUTPUT_TOKENS, OUTPUT_SIGMA = 700.0, 200.0, 0.9
# Amplitude and period of the load in queue scenarios, the same for both sides.
LOAD_SWING, LOAD_PERIOD_S = 0.25, 900.0
# Decoding slows with the queue: increase of log TPOT per log(1 + wait in mean services).
TPOT_PER_LOAD = 0.15
HIT_SHARE, COLD_COST = 0.5, 0.6
SLOT_S = 10.0


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in order of arrival. ttft, tpot and output are natural logs."""

    at_s: Floats
    ahead: NDArray[np.int64]  # requests of the same pod without a first token at arrival
    ttft: Floats
    tpot: Floats
    prompt_tokens: Floats
    cached_share: Floats
    output: Floats
    failed: NDArray[np.bool_]


@dataclass(slots=True)
class Source:
    """Source of one side's requests, drawn in consecutive spans of time."""

    scenario: Scenario
    is_canary: bool
    phase: float
    draw: np.random.Generator
    waits_s: list[float]  # queueing time of each pod
    open_s: list[Floats]  # per pod, first-token times of requests open at the end of a span
    service_s: float  # mean service time
    growth: Growth  # growth of the traffic since the start

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        is_canary: bool,
        phase: float,
        draw: np.random.Generator,
        growth: Growth | None = None,
    ) -> "Source":
        rate = scenario.canary_rate if is_canary else scenario.control_rate
        # Pods of stable carry the same load as the canary's.
        pods = max(1, round(rate / scenario.canary_rate))
        return cls(
            scenario,
            is_canary,
            phase,
            draw,
            [0.0] * pods,
            [np.empty(0)] * pods,
            scenario.utilization * pods / rate,
            growth or Growth(),
        )

    def span(self, start_s: float, end_s: float) -> Requests:
        for _ in range(self.growth.pods - len(self.waits_s)):
            self.waits_s.append(0.0)
            self.open_s.append(np.empty(0))
        at_s = self._arrivals(start_s, end_s)
        n, scenario, draw = len(at_s), self.scenario, self.draw
        length = draw.standard_normal(n)
        noise = self._noise(n)
        share = scenario.length_share
        work = scenario.ttft_sigma * (math.sqrt(share) * length + math.sqrt(1 - share) * noise)
        tpot = math.log(MEDIAN_TPOT_S) + scenario.tpot_sigma * self._noise(n)
        pod_of = draw.integers(len(self.waits_s), size=n)
        if scenario.latency == "queue":
            ttft, load = self._queued(at_s, work, pod_of)
            tpot += TPOT_PER_LOAD * load
        else:
            ttft = math.log(MEDIAN_TTFT_S) + work
        effect = scenario.effect if self.is_canary else type(scenario.effect)()
        missing = self._cold(at_s)
        ttft = ttft + math.log(effect.ttft) + np.log1p(COLD_COST * missing)
        return Requests(
            at_s=at_s,
            ahead=self._ahead(at_s, at_s + np.exp(ttft), pod_of),
            ttft=ttft,
            tpot=tpot + math.log(effect.tpot),
            prompt_tokens=np.maximum(1.0, MEDIAN_PROMPT_TOKENS * np.exp(length)),
            cached_share=HIT_SHARE * (1 - missing),
            output=math.log(MEDIAN_OUTPUT_TOKENS * effect.output)
            + OUTPUT_SIGMA * draw.standard_normal(n),
            failed=draw.random(n) < scenario.error_share + effect.errors,
        )

    def _noise(self, n: int) -> Floats:
        """Noise with mean 0 and variance 1."""
        if self.scenario.latency == "heavy":
            return self.draw.standard_t(4, n) / math.sqrt(2)
        return self.draw.standard_normal(n)

    def _arrivals(self, start_s: float, end_s: float) -> Floats:
        slots = np.arange(start_s, end_s, SLOT_S)
        rate = self.scenario.canary_rate if self.is_canary else self.scenario.control_rate
        load = np.full(len(slots), self.growth.factor)
        if self.scenario.latency == "queue":
            load *= 1 + LOAD_SWING * np.sin(2 * math.pi * slots / LOAD_PERIOD_S + self.phase)
        counts = self.draw.poisson(rate * SLOT_S * load)
        times = np.repeat(slots, counts) + SLOT_S * self.draw.random(counts.sum())
        return np.sort(times)

    def _cold(self, at_s: Floats) -> Floats:
        """Cold fraction of the prefix cache at each time, 0 to 1."""
        if not self.is_canary or not self.scenario.warm_up_s:
            return np.zeros(len(at_s))
        return np.clip(1 - at_s / self.scenario.warm_up_s, 0.0, 1.0)

    def _ahead(
        self, at_s: Floats, first_token_s: Floats, pod_of: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        ahead = np.zeros(len(at_s), dtype=np.int64)
        for pod, open_s in enumerate(self.open_s):
            mine = np.flatnonzero(pod_of == pod)
            answered_s = np.sort(np.concatenate((open_s, first_token_s[mine])))
            given = len(open_s) + np.arange(len(mine))
            # A first token follows its arrival, so all first tokens by then are of earlier arrivals.
            ahead[mine] = given - np.searchsorted(answered_s, at_s[mine], side="right")
            if len(mine):
                self.open_s[pod] = answered_s[answered_s > at_s[mine[-1]]]
        return ahead

    def _queued(
        self, at_s: Floats, work: Floats, pod_of: NDArray[np.int64]
    ) -> tuple[Floats, Floats]:
        """Log TTFT as wait plus service in a single-server queue per pod (Lindley 1952).

        Second value: log(1 + wait / mean service time).
        """
        slower = self.scenario.effect.service if self.is_canary else 1.0
        service_s = slower * self.service_s * np.exp(work - self.scenario.ttft_sigma**2 / 2)
        wait_s = np.empty(len(at_s))
        for pod in range(len(self.waits_s)):
            mine = np.flatnonzero(pod_of == pod)
            if len(mine):
                wait_s[mine] = self._waits(pod, at_s[mine], service_s[mine])
        return np.log(wait_s + service_s), np.log1p(wait_s / self.service_s)

    def _waits(self, pod: int, at_s: Floats, service_s: Floats) -> Floats:
        """Waiting time of each request; the backlog carries over to the next span."""
        gaps_s = np.diff(at_s)
        steps_s = np.concatenate(([self.waits_s[pod]], service_s[:-1] - gaps_s))
        walk_s = np.cumsum(steps_s)
        waits_s = walk_s - np.minimum(np.minimum.accumulate(walk_s), 0.0)
        self.waits_s[pod] = float(max(0.0, waits_s[-1]))
        return np.asarray(waits_s, dtype=np.float64)
