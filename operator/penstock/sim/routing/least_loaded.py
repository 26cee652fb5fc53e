"""Baseline: the engine with the least work in flight."""

from collections.abc import Callable, Sequence

from penstock.core.admission.engine_load import Waiting
from penstock.sim.request import Request
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.view import EngineView


class LeastLoaded(Picker):
    """The engine with the fewest tokens in flight, of prompts and expected answers."""

    def pick(
        self,
        request: Request,
        waiting: Waiting,
        engines: Sequence[EngineView],
        now: float,
        draw: float,
    ) -> EngineView:
        return lowest(engines, lambda engine: engine.tokens, draw)


def lowest(
    engines: Sequence[EngineView], cost: Callable[[EngineView], float], draw: float
) -> EngineView:
    """Engine with the lowest cost; `draw` decides between equal ones."""
    costs = [cost(engine) for engine in engines]
    least = min(costs)
    best = [engine for engine, each in zip(engines, costs, strict=True) if each == least]
    return best[int(draw * len(best))]
