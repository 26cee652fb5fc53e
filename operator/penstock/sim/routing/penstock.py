"""Penstock's routing: the gateway's own code."""

from collections.abc import Sequence

from penstock.core.admission.engine_load import Waiting
from penstock.core.routing.scorers import choose
from penstock.sim.request import Request
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.view import EngineView


class Penstock(Picker):
    """Penstock's scorers, with the prediction of its admission."""

    def __init__(self) -> None:
        self._predicted_s: float | None = None

    def pick(
        self,
        request: Request,
        waiting: Waiting,
        engines: Sequence[EngineView],
        now: float,
        draw: float,
    ) -> EngineView:
        chosen = choose(engines, [view.tokens for view in engines], draw, waiting.attributes)
        load = chosen.load
        self._predicted_s = (
            load.ttft_s(waiting.prefill_tokens) if load.throughput.is_known else None
        )
        return chosen

    def predicted_s(self, request: Request) -> float | None:
        return self._predicted_s
