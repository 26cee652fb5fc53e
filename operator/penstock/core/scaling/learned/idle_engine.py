"""Latencies of the mean request on an idle engine, which no number of replicas can improve."""

from dataclasses import dataclass

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.spec.objectives import Objectives


@dataclass(frozen=True, slots=True)
class IdleEngine:
    """TTFT and TPOT of the mean request alone on an engine, in seconds."""

    ttft_s: float
    tpot_s: float

    @classmethod
    def of(cls, model: IterationModel, uncached_tokens: float, kv_tokens: float) -> "IdleEngine":
        """Latencies that the model predicts. uncached_tokens, kv_tokens: of the mean request, as in `Mix`."""
        return cls(
            ttft_s=model.time_s(uncached_tokens, 0, 0),
            tpot_s=model.time_s(0, 1, kv_tokens),
        )

    def misses_ttft(self, objectives: Objectives) -> bool:
        return self.ttft_s > objectives.ttft_s

    def misses_tpot(self, objectives: Objectives) -> bool:
        return self.tpot_s > objectives.tpot_s

    def missed(self, objectives: Objectives) -> str:
        """The objectives that the engine misses though it is idle, in words; empty if there is none."""
        missed = []
        if self.misses_ttft(objectives):
            missed.append(_text("TTFT", self.ttft_s, objectives.ttft_s))
        if self.misses_tpot(objectives):
            missed.append(_text("TPOT", self.tpot_s, objectives.tpot_s))
        return "; ".join(missed)


def _text(name: str, idle_s: float, objective_s: float) -> str:
    idle, objective = _duration(idle_s, ".3g"), _duration(objective_s, "g")
    return f"the mean request has a {name} of {idle} on an idle engine, and the objective is {objective}"


def _duration(seconds: float, precision: str) -> str:
    """The duration as a spec writes it, such as "120ms" or "2.5s"."""
    if seconds < 1:
        return f"{seconds * 1000:{precision}}ms"
    return f"{seconds:{precision}}s"
