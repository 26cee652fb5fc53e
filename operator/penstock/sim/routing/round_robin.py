"""Baseline: the engines in turn."""

from collections.abc import Sequence

from penstock.core.admission.engine_load import Waiting
from penstock.sim.request import Request
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.view import EngineView


class RoundRobin(Picker):
    """Each engine in turn, as a Kubernetes Service without a router at best."""

    def __init__(self) -> None:
        self._num_picked = 0

    def pick(
        self,
        request: Request,
        waiting: Waiting,
        engines: Sequence[EngineView],
        now: float,
        draw: float,
    ) -> EngineView:
        self._num_picked += 1
        return engines[(self._num_picked - 1) % len(engines)]
