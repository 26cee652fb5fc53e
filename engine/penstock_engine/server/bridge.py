"""From the server's event loop to the engine's thread, and back."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator

from penstock_engine.core.events import TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.sequence import Sequence
from penstock_engine.loop import EngineLoop, StepReport, StepRunner
from penstock_engine.server.metrics import EngineMetrics


class Bridge:
    """Submits sequences and hands their events out. Lives on one asyncio loop.

    idle is set while no sequence is on its way.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: StepRunner,
        metrics: EngineMetrics,
        eos_token_ids: frozenset[int],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._metrics = metrics
        self._eos_token_ids = eos_token_ids
        self._queues: dict[str, asyncio.Queue[TokenEvent]] = {}
        self.idle = asyncio.Event()
        self.idle.set()
        self._max_queued = scheduler.config.max_num_queued_seqs
        self._engine = EngineLoop(scheduler, runner, on_step=self._on_step)
        self._engine.start()

    @property
    def alive(self) -> bool:
        return self._engine.alive

    @property
    def in_flight(self) -> int:
        return len(self._queues)

    @property
    def queue_is_full(self) -> bool:
        return self._engine.stats().waiting >= self._max_queued

    async def close(self) -> None:
        """End what still runs and join the engine's thread."""
        await asyncio.to_thread(self._engine.stop)

    async def generate(
        self, prompt: list[int], sampling: SamplingParams, arrival_s: float, cache_salt: str = ""
    ) -> AsyncGenerator[TokenEvent, None]:
        """The events of one sequence, to its end. Closing the iterator aborts the sequence."""
        request_id = uuid.uuid4().hex
        queue: asyncio.Queue[TokenEvent] = asyncio.Queue()
        self._queues[request_id] = queue
        self.idle.clear()
        self._metrics.accepted(sampling.max_tokens)
        sequence = Sequence(
            request_id, prompt, sampling, self._eos_token_ids, arrival_s, cache_salt
        )
        finished = False
        self._engine.submit(sequence)
        try:
            while not finished:
                event = await queue.get()
                finished = event.finish_reason is not None
                yield event
        finally:
            self._queues.pop(request_id, None)
            if not finished:
                self._engine.abort(request_id)
            if not self._queues:
                self.idle.set()

    def _on_step(self, report: StepReport) -> None:
        """On the engine's thread."""
        try:
            self._loop.call_soon_threadsafe(self._deliver, report)
        except RuntimeError:  # the loop is closed: nobody is listening any more
            return

    def _deliver(self, report: StepReport) -> None:
        self._metrics.observe(report)
        for event in report.events:
            queue = self._queues.get(event.request_id)
            if queue is not None:
                queue.put_nowait(event)


def now_s() -> float:
    """The clock that the engine's events are on."""
    return time.monotonic()
