"""Baseline: session affinity with a table of sessions."""

from collections.abc import Sequence

from penstock.core.admission.engine_load import Waiting
from penstock.sim.request import Request
from penstock.sim.routing.least_loaded import lowest
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.view import EngineView


def session_of(request: Request) -> str:
    """Key of the conversation; where it is not known, the first block of the prompt."""
    return request.session or str(request.prefix[:1])


class SessionAffinity(Picker):
    """Rule that keeps a conversation on the engine of its previous request while that engine is ready.

    A new conversation goes to the engine with the fewest tokens in flight. It is Dynamo's session affinity
    (ai-dynamo/dynamo, "Configuration and Tuning" of its router at 057096c3), without its idle timeout.
    """

    def __init__(self) -> None:
        self._pods: dict[str, str] = {}

    def pick(
        self,
        request: Request,
        waiting: Waiting,
        engines: Sequence[EngineView],
        now: float,
        draw: float,
    ) -> EngineView:
        key = session_of(request)
        bound = self._pods.get(key)
        chosen = next((engine for engine in engines if engine.pod == bound), None)
        if chosen is None:
            chosen = lowest(engines, lambda engine: engine.tokens, draw)
            self._pods[key] = chosen.pod
        return chosen
