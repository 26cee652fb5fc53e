"""Baseline: a random engine."""

from collections.abc import Sequence

from penstock.core.admission.engine_load import Waiting
from penstock.sim.request import Request
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.view import EngineView


class Uniform(Picker):
    """Any engine with equal probability."""

    def pick(
        self,
        request: Request,
        waiting: Waiting,
        engines: Sequence[EngineView],
        now: float,
        draw: float,
    ) -> EngineView:
        return engines[int(draw * len(engines))]
