"""Judges of simulated canaries: Penstock's, and the gates of other projects.

Argo Rollouts, Flagger and Kayenta follow their documentation of 2026: a threshold on p99 latency at 1.25
times the true p99 of stable, and a success rate of at least 99 %. All judge for an hour.
"""

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from penstock.core.canary.evidence import History
from penstock.core.canary.judge import judge
from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.verdict import Abort, Accept, Continue, Extend, MirrorPassed
from penstock.core.spec.canary import CanarySpec
from penstock.sim.rollout.minutes import BLOCK_S, Minute, Objectives, SideMinute
from penstock.sim.rollout.requests import Floats

Outcome = Literal["aborted", "promoted", "undecided"]
HEADROOM = 1.25
MIN_SUCCESS = 0.99


@dataclass(frozen=True, slots=True)
class Decided:
    """Outcome of a canary. at_s: seconds since its first request."""

    outcome: Outcome
    at_s: float
    reason: str


class Judge(Protocol):
    """Judge of one canary."""

    @property
    def weight(self) -> float:
        """Share of traffic that the judge gives the canary."""
        ...

    def observe(self, minute: Minute) -> Decided | None:
        """Take the evidence of one minute. Returns the outcome once it is decided."""
        ...


@dataclass(slots=True)
class Penstock:
    """Penstock's sequential tests."""

    spec: CanarySpec
    state: JudgeState

    @property
    def weight(self) -> float:
        return self.state.weight

    def observe(self, minute: Minute) -> Decided | None:
        for index, block in enumerate(minute.blocks):
            verdict, self.state = judge(self.spec, self.state, block)
            at_s = minute.index * 60 + (index + 1) * BLOCK_S
            match verdict:
                case Accept(cause="Timeout") | Abort(cause="Timeout"):
                    return Decided("undecided", at_s, verdict.reason)
                case Accept():
                    return Decided("promoted", at_s, verdict.reason)
                case Abort():
                    return Decided("aborted", at_s, verdict.reason)
                case Continue() | Extend() | MirrorPassed():
                    pass
        return None


def _violated(limits: Objectives, sides: list[SideMinute]) -> str | None:
    """Name of the threshold that a window of minutes violates; None if none, or without data."""
    requests = sum(side.requests for side in sides)
    if not requests:
        return None
    if 1 - sum(side.errors for side in sides) / requests < MIN_SUCCESS:
        return "success rate"
    for name, limit, values in (
        ("TTFT p99", limits.ttft, [side.ttft_s for side in sides]),
        ("TPOT p99", limits.tpot, [side.tpot_s for side in sides]),
    ):
        joined = np.concatenate(values)
        if len(joined) and np.quantile(joined, 0.99) > HEADROOM * np.exp(limit):
            return name
    return None


@dataclass(slots=True)
class Argo:
    """Argo Rollouts: measures the last five minutes every minute; aborts after failure_limit failures."""

    limits: Objectives
    minutes: int
    failure_limit: int
    window: list[SideMinute] = field(default_factory=list)
    failed: int = 0
    weight: float = field(default=CanarySpec().min_weight, init=False)

    def observe(self, minute: Minute) -> Decided | None:
        self.window = [*self.window, minute.canary][-5:]
        at_s = (minute.index + 1) * 60.0
        if broken := _violated(self.limits, self.window):
            self.failed += 1
            if self.failed > self.failure_limit:
                return Decided("aborted", at_s, broken)
        return Decided("promoted", at_s, "") if minute.index + 1 == self.minutes else None


@dataclass(slots=True)
class Flagger:
    """Flagger: checks each minute, counts failed checks and never resets the count.

    It rolls back one tick after the count reaches the threshold. A minute without data is a failed check.
    """

    limits: Objectives
    minutes: int
    threshold: int = 5
    failed: int = 0
    weight: float = field(default=CanarySpec().min_weight, init=False)

    def observe(self, minute: Minute) -> Decided | None:
        at_s = (minute.index + 1) * 60.0
        if self.failed >= self.threshold:
            return Decided("aborted", at_s, "failed checks")
        if not minute.canary.requests or _violated(self.limits, [minute.canary]):
            self.failed += 1
        return Decided("promoted", at_s, "") if minute.index + 1 == self.minutes else None


@dataclass(slots=True)
class Kayenta:
    """Kayenta: NetflixACAJudge on one point per minute, evaluated once at the end."""

    minutes: int
    points: list[tuple[list[float], list[float]]] = field(default_factory=list)
    weight: float = field(default=CanarySpec().min_weight, init=False)

    def observe(self, minute: Minute) -> Decided | None:
        self.points.append((_point(minute.canary), _point(minute.control)))
        if minute.index + 1 < self.minutes:
            return None
        canary = np.array([canary for canary, _ in self.points])
        control = np.array([control for _, control in self.points])
        for metric, name in enumerate(("TTFT p99", "TPOT p99", "error rate")):
            if is_high(canary[:, metric], control[:, metric]):
                return Decided("aborted", self.minutes * 60.0, name)
        return Decided("promoted", self.minutes * 60.0, "")


def _point(side: SideMinute) -> list[float]:
    latencies = [
        float(np.quantile(values, 0.99)) if len(values) else float("nan")
        for values in (side.ttft_s, side.tpot_s)
    ]
    return [*latencies, side.errors / side.requests if side.requests else float("nan")]


def is_high(canary: Floats, control: Floats) -> bool:
    """Mann-Whitney test by the 98 % interval of the Hodges-Lehmann shift, without outliers."""
    x, y = _without_outliers(canary), _without_outliers(control)
    if len(x) < 2 or len(y) < 2:
        return False
    shifts = np.sort(np.subtract.outer(x, y).ravel())
    half = 2.326 * np.sqrt(len(x) * len(y) * (len(x) + len(y) + 1) / 12)
    low = max(0, int(len(shifts) / 2 - half))
    estimate = float(np.median(shifts))
    return bool(shifts[low] > 0.25 * abs(estimate))


def _without_outliers(values: Floats) -> Floats:
    """Drop missing values and those more than three interquartile ranges outside the quartiles."""
    values = values[~np.isnan(values)]
    if not len(values):
        return values
    low, high = np.quantile(values, (0.25, 0.75))
    margin = 3 * (high - low)
    kept: Floats = values[(values >= low - margin) & (values <= high + margin)]
    return kept


JudgeName = Literal["penstock", "argo", "argo-3", "flagger", "kayenta"]


def make_judge(name: JudgeName, spec: CanarySpec, limits: Objectives, past: History) -> Judge:
    minutes = round(spec.max_duration_s / 60)
    match name:
        case "penstock":
            return Penstock(spec, JudgeState.begin(spec, past))
        case "argo":
            return Argo(limits, minutes, failure_limit=0)
        case "argo-3":
            return Argo(limits, minutes, failure_limit=3)
        case "flagger":
            return Flagger(limits, minutes)
        case "kayenta":
            return Kayenta(minutes)
