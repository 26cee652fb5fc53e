"""Sends the lines of one batch until each has a result, or the batch is stopped."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from penstock.batch.running.line_client import LineClient
from penstock.batch.running.line_memory import LineMemory
from penstock.batch.running.line_source import LineSource
from penstock.batch.store.journal import Journal, JournalEntry
from penstock.batch.store.keys import new_line_id
from penstock.batch.store.object_store import StoreError
from penstock.batch.store.tenant_storage import TenantStorage
from penstock.batch.telemetry import BatchMetrics
from penstock.clients.pods.shared_slots import SharedSlots
from penstock.core.batches.concurrency import LineWindow
from penstock.core.batches.input_line import InputLine
from penstock.core.batches.records import Batch
from penstock.core.batches.results import MAX_SERVER_ERRORS, Answer, result_line

logger = logging.getLogger(__name__)

# s: longest wait for something to change, so that a changed clock delays nothing for long.
MAX_WAIT_S = 1.0
# Answer to a line that this program could not send. It is sent again as after an error of the gateway.
NOT_SENT = Answer(
    500, b'{"error": {"message": "the batch server failed", "code": "batch_server_failed"}}'
)


@dataclass(slots=True)
class _PendingLine:
    """A line that has no result yet. num_errors: answers to it that were errors of a server."""

    line: InputLine
    num_errors: int = 0


class Execution:
    """The lines of one batch at the gateway. stopped: set when no further line is to be sent.

    now: Unix time.
    """

    def __init__(
        self,
        batch: Batch,
        source: LineSource,
        journal: Journal,
        client: LineClient,
        permits: SharedSlots,
        memory: LineMemory,
        storage: TenantStorage,
        metrics: BatchMetrics,
        now: Callable[[], float],
    ) -> None:
        self._batch, self._source, self._journal = batch, source, journal
        self._client, self._permits, self._memory = client, permits, memory
        self._storage, self._metrics, self._now = storage, metrics, now
        self._window = LineWindow()
        self._running: set[asyncio.Task[None]] = set()
        self._num_seeking = 0  # of these, those without a line yet
        self._reading = asyncio.Lock()
        self._refused: deque[_PendingLine] = deque()  # they are sent again
        self._changed = asyncio.Event()
        self._is_read = self._is_stopped = self._is_closing = False
        self._failure: BaseException | None = None  # an error of this program

    def stop(self) -> None:
        """Send no further line, and let `run` return when those that run have ended."""
        self._is_stopped = True
        self._changed.set()

    def cut_lines(self) -> None:
        """End the lines that run, without a result."""
        for task in self._running:
            task.cancel()

    async def run(self) -> bool:
        """Send lines. Returns whether all of them have a result, which the journal then has stored.

        No further line is sent while the tenant has no storage for its result.
        Raises StoreError if the input file cannot be read, and any error of this program.
        """
        flushing = asyncio.create_task(self._flush_regularly())
        flushing.add_done_callback(self._note_failure)
        try:
            await self._send_all()
        finally:
            if self._running:
                await asyncio.gather(*self._running, return_exceptions=True)
            self._is_closing = True
            self._changed.set()
            await asyncio.wait([flushing])
            self._memory.close()
        if self._failure is not None:
            raise self._failure
        return self._is_done

    @property
    def _is_done(self) -> bool:
        return self._is_read and not self._refused and not self._running

    @property
    def _has_storage(self) -> bool:
        return self._storage.has_room(self._batch.tenant)

    async def _send_all(self) -> None:
        while not self._is_stopped and not self._is_done and self._has_storage:
            self._changed.clear()
            if not self._may_send():
                await self._wait_for_change()
                continue
            self._num_seeking += 1
            task = asyncio.create_task(self._send())
            self._running.add(task)
            task.add_done_callback(self._note_end)

    def _may_send(self) -> bool:
        return (
            len(self._running) < self._window.num_lines
            and self._now() >= self._window.resume_s
            and self._journal.has_room
            and (
                len(self._refused) > self._num_seeking
                or (not self._is_read and self._memory.has_room)
            )
        )

    async def _next(self) -> _PendingLine | None:
        """The next line, a refused one first; None if all are read, or there is no memory for it.

        Raises StoreError.
        """
        if self._refused:
            return self._refused.popleft()
        async with self._reading:
            if self._is_read or not self._memory.has_room:
                return None
            with self._memory.reading():
                line = await self._source.next()
            if line is None:
                self._is_read = True
                return None
            self._memory.add(len(line.body))
            return _PendingLine(line)

    async def _wait_for_change(self) -> None:
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._note_failure(task)
        self._changed.set()

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self.stop()

    async def _send(self) -> None:
        """Send the next line when there is a permit. Lines that wait for one take no memory."""
        async with self._permits.hold(self._batch.tenant):
            sent_s = self._now()
            pending = await self._find(sent_s)
            if pending is not None:
                await self._try(pending, sent_s)

    async def _find(self, sent_s: float) -> _PendingLine | None:
        """The line to send now; None if there is none. Raises StoreError."""
        try:
            if sent_s < self._window.resume_s or self._is_stopped or not self._has_storage:
                return None
            return await self._next()
        finally:
            self._num_seeking -= 1

    async def _try(self, pending: _PendingLine, sent_s: float) -> None:
        """Send a line once. Without a result it is among the refused ones then."""
        result = None
        try:
            with self._memory.answer() as take_memory:
                answer = await self._answer_to(pending.line, take_memory)
                result = self._result_of(pending, answer, sent_s)
                if result is not None:
                    self._keep(pending.line, result)
        finally:
            if result is None:
                self._refused.append(pending)

    async def _answer_to(
        self, line: InputLine, take_memory: Callable[[int], bool]
    ) -> Answer | None:
        """The answer to a line; NOT_SENT after an error of this program."""
        try:
            return await self._client.send(self._batch, line, take_memory)
        except Exception:
            logger.exception("a line of %s was not sent", self._batch.id)
            return NOT_SENT

    def _result_of(
        self, pending: _PendingLine, answer: Answer | None, sent_s: float
    ) -> Answer | None:
        """The answer, if it is the line's result. None: the line has to be sent again."""
        if answer is not None and answer.is_server_error and not answer.is_refusal:
            pending.num_errors += 1
            if pending.num_errors >= MAX_SERVER_ERRORS:
                return answer
        elif answer is not None and not answer.is_refusal:
            self._window.note_answer()
            return answer
        self._metrics.lines.labels("repeated").inc()
        retry_after_s = None if answer is None else answer.retry_after_s
        self._window.note_refusal(self._now(), sent_s, retry_after_s)
        return None

    def _keep(self, line: InputLine, result: Answer) -> None:
        self._metrics.lines.labels("completed" if result.is_success else "failed").inc()
        text = result_line(new_line_id(), line.custom_id, result)
        self._journal.add(JournalEntry(line.index, result.is_success, text))
        self._memory.add(-len(line.body))
        if self._journal.is_segment_full:
            self._changed.set()

    async def _flush_regularly(self) -> None:
        """Store results until the end, whatever the store says meanwhile."""
        last_s = asyncio.get_running_loop().time()
        while True:
            is_last = self._is_closing
            now_s = asyncio.get_running_loop().time()
            if (
                is_last
                or self._journal.is_segment_full
                or now_s - last_s >= self._journal.interval_s
            ):
                last_s = now_s
                try:
                    await self._journal.flush()
                except StoreError as error:
                    logger.warning("results of %s wait to be stored: %s", self._batch.id, error)
                    is_last = False
                self._changed.set()
            if is_last:
                return
            await asyncio.sleep(0.1 if not self._is_closing else 0.5)
