"""Simulated engine: the real scheduler and block pool, with a time model in place of the runner.

    submit -> schedule_leap: one iteration with chunks, then iterations without -> complete_leap

A request that arrives ends the leap with the running iteration. The listener hears of a sequence's end at its
time; the scheduler frees its blocks at the end of the leap. That changes no result: if requests wait for
blocks, the leap ends with its first ended sequence.
"""

from collections.abc import Callable
from collections.abc import Sequence as Many
from math import sqrt
from random import Random
from typing import Protocol

from penstock.core.scaling.signals import EngineReading
from penstock.sim.clock import Clock
from penstock.sim.engine.batch import Batch
from penstock.sim.engine.counters import EngineCounters
from penstock.sim.engine.job import Job
from penstock.sim.engine.leap import DecodeRun
from penstock.sim.engine.leap_scheduler import LeapScheduler
from penstock.sim.profile import Profile
from penstock.sim.request import Request
from penstock_engine.core.prefill_budget import PrefillBudget
from penstock_engine.core.step import ScheduledSequence, Step


class Listener(Protocol):
    """Sender of requests. The engine calls it at the first token and at the end of each request."""

    def started(self, request: Request) -> None: ...

    def ended(self, request: Request) -> None: ...


class Engine:
    """Simulated engine. factor: iteration time, as a multiple of the profile's.

    prefix_block_tokens: tokens per id of a request's prefix; 0: no prefix is shared.
    """

    def __init__(
        self,
        profile: Profile,
        clock: Clock,
        listener: Listener,
        random: Random,
        prefix_block_tokens: int = 0,
    ) -> None:
        self.profile = profile
        self.factor = 1.0
        self._clock = clock
        self._listener = listener
        self._random = random
        self._prefix_block_tokens = prefix_block_tokens
        self._prefill_budget = PrefillBudget()
        self.scheduler = LeapScheduler(profile.scheduler(prefix_block_tokens), self._prefill_budget)
        self._jobs: dict[str, Job] = {}  # all unfinished requests
        self._batch = Batch()
        self._pending: dict[str, Job] = {}  # unfinished requests without a first token
        self._is_running = False
        self._step: Step | None = None  # of the leap's first iteration
        self._chunks: Many[ScheduledSequence] = ()  # of the step: prompts and preempted sequences
        self._decode_run: DecodeRun | None = None  # unset in an iteration with chunks
        self._ended: list[str] = []  # in this leap
        self._first_iteration = self._end_iteration = 0  # of the leap
        self._is_blocked = False  # requests wait until a running sequence ends
        self._step_factor = 1.0
        self._begin_s = self._due_s = 0.0
        self._counters = EngineCounters()
        self._drained: Callable[[], None] = lambda: None

    @property
    def num_open(self) -> int:
        return len(self._jobs)

    @property
    def kv_tokens(self) -> int:
        return self._batch.kv

    def submit(self, request: Request, tpot_s: float | None = None) -> bool:
        """Add a request. tpot_s: as in `Sequence`. Returns False if the engine refuses it."""
        room = self.scheduler.config.max_num_tokens - request.prompt_tokens
        if room < 1:
            return False
        job = Job.of(
            request,
            min(request.output_tokens, room),
            self._clock.now,
            tpot_s,
            self._prefix_block_tokens,
        )
        if self.scheduler.add(job.sequence) is not None:
            return False
        if request.answer is not None and self._prefix_block_tokens:
            self.scheduler.blocks[request.request_id] = request.prefix + request.answer
        self._jobs[request.request_id] = self._pending[request.request_id] = job
        if not self._is_running:
            self._start()
        elif not self._is_blocked:
            self._cut()
        return True

    def drain(self, drained: Callable[[], None]) -> None:
        """Call `drained` when the last request has ended, or at once if there is none."""
        if self._jobs:
            self._drained = drained
        else:
            drained()

    def crash(self) -> list[Request]:
        """Stop the engine for good. Returns the unfinished requests."""
        self._due_s = -1.0
        return [job.request for job in self._jobs.values()]

    def reading(self) -> EngineReading:
        """Current metrics. The KV blocks of a leap count as used from its start."""
        if self._decode_run is not None:
            to_come = self._next_iteration() - self._batch.iteration
            done = self._decode_run.done(self._clock.now)
            # Sequences end at their own event.
            self._settle(self._decode_run, min(done, to_come - 1))
        settled_s = 0.0 if self._decode_run is None else self._decode_run.begin_s - self._begin_s
        return self._counters.read(
            self._clock.now,
            self.scheduler.stats(),
            len(self._jobs),
            self._batch.iteration,
            self.profile.kv_tokens,
            settled_s,
        )

    def _start(self) -> None:
        """Schedule the next leap if there is work."""
        batch = self._batch
        iterations = self._max_iterations()
        self._begin_s = self._clock.now
        self._decode_run = None
        self._step = self.scheduler.schedule_leap(self._begin_s, batch.iteration, iterations)
        self._chunks = () if self._step is None else self._step.sequences
        preempted = batch.remove(self.scheduler.preempted)
        for request_id in preempted:
            self._pending[request_id] = self._jobs[request_id]
        self._is_running = bool(self._chunks or batch)
        if not self._is_running:
            return
        self._is_blocked = bool(self._pending) and not self._chunks and not preempted
        self._first_iteration = batch.iteration
        self._end_iteration = batch.iteration + iterations
        self._step_factor = self._factor()
        if self._chunks:
            self._wake_at(self._begin_s + self._mixed_s())
        else:
            self._start_decode_run()

    def _max_iterations(self) -> int:
        """Number of iterations of the next leap. One that blocks requests ends with its first sequence."""
        batch = self._batch
        if not self._is_blocked:
            pending = (job.sequence for job in self._pending.values())
            return self.scheduler.max_iterations(pending, len(batch))
        iterations = self.scheduler.max_iterations((), len(batch))
        return min(iterations, batch.first_ending - batch.iteration) if batch else iterations

    def _mixed_s(self) -> float:
        """Duration of one iteration with prompt chunks."""
        lengths = [(len(s.token_ids), s.start) for s in self._chunks]
        prompt_tokens = sum(length for length, _ in lengths)
        pairs = sum(length * (start + length / 2) for length, start in lengths)
        return self._step_factor * self.profile.times.iteration_s(
            prompt_tokens, pairs, len(self._batch), self._batch.kv
        )

    def _factor(self) -> float:
        noise = self.profile.times.noise
        if not noise:
            return self.factor
        iterations = self._end_iteration - self._first_iteration
        return self.factor * max(0.1, 1 + self._random.gauss(0, noise / sqrt(iterations)))

    def _start_decode_run(self) -> None:
        """Start a run of decode iterations from now to the next end of a sequence or of the leap."""
        batch = self._batch
        self._decode_run = DecodeRun(
            self.profile.times, len(batch), batch.kv, self._clock.now, self._step_factor
        )
        self._wake_at(self._decode_run.end_s(self._next_iteration() - batch.iteration))

    def _next_iteration(self) -> int:
        return min(self._batch.first_ending, self._end_iteration)

    def _cut(self) -> None:
        """End the leap with the running iteration."""
        if self._decode_run is None:
            self._end_iteration = self._first_iteration + 1
            return
        end = self._batch.iteration + self._decode_run.done(self._clock.now) + 1
        if end < self._next_iteration():
            self._wake_at(self._decode_run.end_s(end - self._batch.iteration))
        self._end_iteration = min(end, self._end_iteration)

    def _wake_at(self, when: float) -> None:
        self._due_s = when
        self._clock.schedule_at(when, self._wake)

    def _wake(self) -> None:
        """Handle the end of an iteration with chunks, or of a run of decode iterations."""
        if self._clock.now != self._due_s:
            return  # the leap was cut, or the engine crashed
        batch = self._batch
        begun: list[str] = []
        if self._decode_run is None:
            took_s = self._clock.now - self._begin_s
            self._prefill_budget.observe_step(sum(len(s.token_ids) for s in self._chunks), took_s)
            self._counters.record_decode(1, len(batch), took_s)
            ended = batch.advance(1)
            begun, ended_too = self._join()
            ended += ended_too
        else:
            ended = self._settle(self._decode_run, self._next_iteration() - batch.iteration)
        self._ended += ended
        is_over = not batch or batch.iteration >= self._end_iteration
        if is_over:
            self._complete()
        else:
            self._start_decode_run()
        self._tell(begun, ended)
        if is_over:
            self._start()

    def _settle(self, decode_run: DecodeRun, iterations: int) -> list[str]:
        """Account `iterations` of the run; the rest becomes a run of its own.

        Returns the ids of the sequences that ended with the last of them.
        """
        if not iterations:
            return []
        end_s = decode_run.end_s(iterations)
        iteration_s = (end_s - decode_run.begin_s) / iterations
        self._counters.record_decode(iterations, decode_run.sequences, iteration_s)
        self._prefill_budget.observe_step(0, iteration_s)
        ended = self._batch.advance(iterations)
        self._decode_run = DecodeRun(
            decode_run.times, decode_run.sequences, self._batch.kv, end_s, decode_run.factor
        )
        return ended

    def _join(self) -> tuple[list[str], list[str]]:
        """Move sequences whose prompt is complete to the decoding batch; each got a token in this iteration.

        Returns their ids, and the ids of those for which it was the last token.
        """
        joined = [s.request_id for s in self._chunks if s.is_sampled]
        ended: list[str] = []
        self._counters.output_tokens += len(joined)
        for request_id in joined:
            sequence = self._pending.pop(request_id).sequence
            to_come = sequence.sampling.max_tokens - sequence.num_output_tokens - 1
            if to_come:
                self._batch.join(request_id, sequence.num_tokens + 1, to_come)
            else:
                ended.append(request_id)
        return joined, ended

    def _complete(self) -> None:
        """Report the finished leap to the scheduler."""
        now = self._clock.now
        self.scheduler.complete_leap(self._step, self._batch.iteration, self._ended, now)
        self._counters.busy_s += now - self._begin_s
        self._decode_run = None
        self._is_blocked = self._is_blocked and not self._ended
        self._ended = []

    def _tell(self, begun: list[str], ended: list[str]) -> None:
        now, request_s = self._clock.now, self.profile.request_s
        for request_id in begun:
            job = self._jobs[request_id]
            if job.request.first_token_s is None:
                job.request.first_token_s = now + request_s
                job.request.cached_tokens = job.sequence.num_cached_tokens
                self._counters.record_first_token(now - job.sequence.arrival_s)
                self._listener.started(job.request)
        for request_id in ended:
            job = self._jobs.pop(request_id)
            self._counters.record_end(job.sequence.sampling.max_tokens)
            job.request.end_s = now + request_s
            self._listener.ended(job.request)
        if not self._jobs:
            self._drained()
