"""Interface of routing rules."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from penstock.core.admission.engine_load import Waiting
from penstock.core.admission.engines import Engines
from penstock.sim.request import Request
from penstock.sim.routing.view import EngineView


class Picker(ABC):
    """Base of routing rules, each of which serves one gateway.

    scrape_s: time between two scrapes of the engines' metrics; 0: the rule reads none.
    """

    scrape_s = 0.0

    @abstractmethod
    def pick(
        self,
        request: Request,
        waiting: Waiting,
        engines: Sequence[EngineView],
        now: float,
        draw: float,
    ) -> EngineView:
        """Pick the engine of a request that is sent now.

        waiting: the request as admission knows it. engines: at least one. draw: uniform in [0, 1).
        """

    def attach(self, engines: Engines) -> None:  # noqa: B027 - a default
        """Learn of the gateway's own record of its engines, which other rules do not read."""

    def predicted_s(self, request: Request) -> float | None:
        """Predicted time from now to the first token of the request that was picked last.

        None: the rule predicts nothing.
        """
        return None

    def sent(self, request: Request, now: float) -> None:  # noqa: B027 - a default
        """React to a request that was sent to `request.pod`. Default: nothing."""

    def first_token(self, request: Request, now: float) -> None:  # noqa: B027 - a default
        """React to a first token. request.cached_tokens: as the engine reports them. Default: nothing."""

    def ended(self, request: Request, now: float) -> None:  # noqa: B027 - a default
        """React to the end of a request that was sent, whatever its outcome. Default: nothing."""

    def engine_added(self, engine: EngineView, now: float) -> None:  # noqa: B027 - a default
        """React to an engine that is ready; after a restart it has an empty cache. Default: nothing."""

    def engine_removed(self, pod: str, now: float) -> None:  # noqa: B027 - a default
        """React to an engine that gets no more requests. Default: nothing."""
