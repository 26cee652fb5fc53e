"""An engine as a router sees it."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.admission.engine_load import EngineLoad
from penstock.sim.engine.engine import Engine


class QueueMetrics(NamedTuple):
    """Metrics of an engine that routers scrape. kv_usage: fraction of its KV blocks in use."""

    waiting: int
    running: int
    kv_usage: float


class EngineView:
    """View of an engine of a service. The rule of another router reads only what that router would know.

    load: the gateway's own record of what it sent. tokens, requests: in flight there, by that record.
    unanswered: those without a first token. metrics: as last scraped; rules that scrape nothing have none.
    """

    __slots__ = ("_engine", "load", "metrics", "pod", "requests", "tokens", "unanswered")

    def __init__(self, pod: str, load: EngineLoad, engine: Engine) -> None:
        self.pod = pod
        self.load = load
        self.tokens = self.requests = self.unanswered = 0
        self.metrics = QueueMetrics(0, 0, 0.0)
        self._engine = engine

    @property
    def num_blocks(self) -> int:
        """Number of its KV blocks, which it reports at its start."""
        return self._engine.scheduler.config.num_blocks

    @property
    def block_tokens(self) -> int:
        """Tokens of a KV block, which it reports at its start."""
        return self._engine.scheduler.config.block_size

    def scrape(self) -> None:
        """Read its metrics."""
        scheduler = self._engine.scheduler
        waiting = scheduler.num_waiting
        self.metrics = QueueMetrics(waiting, self._engine.num_open - waiting, scheduler.pool.usage)

    def num_resident_blocks(self, hashes: Sequence[bytes]) -> int:
        """Number of leading blocks that its prefix cache holds, as a router with block events knows.

        hashes: of the blocks of a prompt.
        """
        pool = self._engine.scheduler.pool
        return next(
            (index for index, each in enumerate(hashes) if pool.find(each) is None), len(hashes)
        )
