"""Penstock's routing: the gateway's own code."""

from collections.abc import Sequence

from penstock.core.admission.engine_load import Waiting
from penstock.core.admission.engines import Engines
from penstock.sim.request import Request
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.view import EngineView


class Penstock(Picker):
    """The engine where a request costs least."""

    def __init__(self) -> None:
        self._engines = Engines()
        self._predicted_s: float | None = None

    def attach(self, engines: Engines) -> None:
        self._engines = engines

    def pick(
        self,
        request: Request,
        waiting: Waiting,
        engines: Sequence[EngineView],
        now: float,
        draw: float,
    ) -> EngineView:
        loads = [view.load for view in engines]
        chosen = self._engines.choose(waiting, loads, now, draw)
        is_known = chosen.load.kind.model.is_known
        self._predicted_s = chosen.load.ttft_s(chosen.uncached_tokens, now) if is_known else None
        return engines[chosen.index]

    def predicted_s(self, request: Request) -> float | None:
        return self._predicted_s
