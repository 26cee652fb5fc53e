"""From the server's event loop to the engine's thread, and back."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from penstock_engine.core.events import TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.sequence import Sequence
from penstock_engine.loop import EngineLoop, StepReport, StepRunner
from penstock_engine.server.metrics import EngineMetrics, RequestRecord

WATCH_INTERVAL_S = 0.5


class EngineGone(Exception):
    """The engine's thread has ended; nothing will come of a request any more."""


@dataclass(slots=True)
class _Live:
    """A sequence on its way. None in the queue: the engine is gone."""

    record: RequestRecord
    events: asyncio.Queue[TokenEvent | None] = field(default_factory=asyncio.Queue)


class Bridge:
    """Submits sequences and hands their events out. Lives on one asyncio loop."""

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
        self._live: dict[str, _Live] = {}
        self._max_queued = scheduler.config.max_num_queued_seqs
        self._engine = EngineLoop(scheduler, runner, clock=now_s, on_step=self._on_step)
        self._engine.start()
        self._watching = asyncio.create_task(self._watch())

    @property
    def alive(self) -> bool:
        return self._engine.alive

    @property
    def is_full(self) -> bool:
        """Whether the queue has no room, as of the last step."""
        return self._engine.stats().waiting >= self._max_queued

    def lose(self) -> None:
        """Thread-safe: what computes the steps is gone, and so is the engine."""
        self._engine.lose()

    async def close(self) -> None:
        """Ends what still runs, with an event of reason "error" each, and the engine's thread."""
        await asyncio.to_thread(self._engine.stop)
        await self._watching

    async def generate(
        self, prompt: list[int], sampling: SamplingParams, record: RequestRecord, cache_salt: str
    ) -> AsyncGenerator[TokenEvent]:
        """The events of one sequence, to its end. Closing the iterator aborts the sequence.

        Raises EngineGone.
        """
        if not self.alive:
            raise EngineGone
        sequence_id = uuid.uuid4().hex
        live = self._live[sequence_id] = _Live(record)
        self._engine.submit(
            Sequence(sequence_id, prompt, sampling, self._eos_token_ids, now_s(), cache_salt)
        )
        is_finished = False
        try:
            while not is_finished:
                event = await live.events.get()
                if event is None:
                    raise EngineGone
                is_finished = event.finish_reason is not None
                yield event
        finally:
            if not is_finished:
                self._engine.abort(sequence_id)

    def _on_step(self, report: StepReport) -> None:
        """On the engine's thread."""
        try:
            self._loop.call_soon_threadsafe(self._deliver, report)
        except RuntimeError:  # the loop is closed: nobody is listening any more
            return

    def _deliver(self, report: StepReport) -> None:
        self._metrics.observe_step(report)
        for event in report.events:
            live = self._live.get(event.request_id)
            if live is None:  # given up by the watch, at the very end
                continue
            self._metrics.observe_event(event, live.record)
            live.events.put_nowait(event)
            if event.finish_reason is not None:
                del self._live[event.request_id]

    async def _watch(self) -> None:
        """What is submitted while the engine's thread ends would else wait for ever."""
        while self.alive:  # noqa: ASYNC110 - a thread has no event to wait for
            await asyncio.sleep(WATCH_INTERVAL_S)
        for live in self._live.values():
            live.events.put_nowait(None)
        self._live.clear()


def now_s() -> float:
    """The clock that the engine's events are on."""
    return time.monotonic()
