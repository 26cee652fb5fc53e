"""One engine: the real scheduler and block pool, with a model of time in place of the runner.

    submit -> scheduler.add -> step: one iteration with chunks, or a leap -> scheduler.complete

A leap goes on until a request comes, and then ends with the iteration that runs. Sequences that end
within it are told of at their time; the scheduler learns of it at the end of the leap. That changes
nothing: nobody waits for what they hold, as a leap ends with the first of them when somebody does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import sqrt
from random import Random
from typing import Protocol

from penstock.core.signals import EngineReading
from penstock.core.tally import Tally
from penstock.sim.batch import Batch
from penstock.sim.clock import Clock
from penstock.sim.leap import MAX_ITERATIONS, LeapGovernor, Stretch, leaping
from penstock.sim.profile import Profile
from penstock.sim.request import Request, prompt_of
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import Sampled, ScheduledSequence, Step
from penstock_engine.wire import BETWEEN_TOKENS_S, FIRST_TOKEN_S

NO_TOKEN_IDS: frozenset[int] = frozenset()


class Listener(Protocol):
    """Whoever sent the requests: told of the first token and of the end of each, at their time."""

    def began(self, request: Request) -> None: ...

    def ended(self, request: Request) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A request, and the scheduler's sequence for it."""

    request: Request
    sequence: Sequence


class Everyone(dict[str, Sampled]):
    """Each sequence of a step gets so many tokens; the scheduler stops at a sequence's last."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self._sampled = Sampled((0,) * tokens)

    def get(self, request_id: str, default: object = None) -> Sampled:
        return self._sampled


everyone = cache(Everyone)


@cache
def sampling(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True)


class Engine:
    """factor: how many times longer its iterations take than the profile says.

    prefix_block_tokens: what one id of a request's prefix stands for; 0: no prefix is shared.
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
        self._governor = LeapGovernor()
        self.scheduler = Scheduler(profile.scheduler(prefix_block_tokens), leaping(self._governor))
        self._jobs: dict[str, Job] = {}  # all that have not ended
        self._batch = Batch()
        self._decoding: set[str] = set()  # the batch, and those that ended within this leap
        self._step: Step | None = None
        self._chunks: list[ScheduledSequence] = []  # of the step: prompts, or what was preempted
        self._stretch: Stretch | None = None  # of the leap, when the step is one
        self._first_iteration = self._end_iteration = 0  # of the step
        self._is_blocked = False  # whoever waits, waits for somebody's end
        self._begin_s = self._due_s = 0.0
        self._leap_tokens = 0  # given in this leap: the scheduler does not know of them yet
        self._finished = self._finished_tokens = 0
        self._drained: Callable[[], None] = lambda: None
        self._ttft_s, self._itl_s = Tally(FIRST_TOKEN_S), Tally(BETWEEN_TOKENS_S)

    @property
    def num_open(self) -> int:
        return len(self._jobs)

    @property
    def kv_tokens(self) -> int:
        return self._batch.kv

    def submit(self, request: Request) -> bool:
        """False when the request can never fit."""
        room = self.scheduler.config.max_num_tokens - request.prompt_tokens
        if room < 1:
            return False
        prompt = prompt_of(request, self._prefix_block_tokens)
        max_tokens = min(request.output_tokens, room)
        sequence = Sequence(
            request.request_id, prompt, sampling(max_tokens), NO_TOKEN_IDS, self._clock.now
        )
        self.scheduler.add(sequence)
        self._jobs[request.request_id] = Job(request, sequence)
        if self._step is None:
            self._start()
        elif self._stretch is not None and not self._is_blocked:
            self._cut(self._stretch)
        return True

    def drain(self, drained: Callable[[], None]) -> None:
        """Calls `drained` when the last of what it has is done, or at once."""
        if self._jobs:
            self._drained = drained
        else:
            drained()

    def crash(self) -> list[Request]:
        """Nothing more comes from this engine. What it had not ended."""
        self._due_s = -1.0
        return [job.request for job in self._jobs.values()]

    def reading(self) -> EngineReading:
        """As of now, but for the blocks of a leap: they count from its start."""
        if self._stretch is not None:
            to_come = self._next_iteration() - self._batch.iteration
            done = self._stretch.done(self._clock.now)
            self._settle(self._stretch, min(done, to_come - 1))  # ends are told when they are due
        stats = self.scheduler.stats()
        return EngineReading(
            at_s=self._clock.now,
            running=len(self._jobs) - stats.waiting,
            waiting=stats.waiting,
            kv_usage=stats.kv_usage,
            kv_capacity_tokens=self.profile.kv_tokens,
            prefill_tokens_pending=stats.prefill_tokens_pending,
            prompt_tokens=stats.prompt_tokens_computed + stats.prompt_tokens_cached,
            cached_tokens=stats.prompt_tokens_cached,
            output_tokens=stats.generation_tokens + self._leap_tokens,
            steps=self._batch.iteration,
            finished=self._finished,
            output_tokens_finished=self._finished_tokens,
            preemptions=stats.preemptions,
            ttft_s=self._ttft_s.histogram(),
            itl_s=self._itl_s.histogram(),
        )

    def _start(self) -> None:
        """The next step, if there is anything to compute."""
        now = self._begin_s = self._clock.now
        self._governor.drafts = self._num_drafts()
        self._leap_tokens = 0
        self._stretch = None
        step = self._step = self.scheduler.schedule(now)
        if step is None:
            return
        batch = self._batch
        self._chunks = [s for s in step.sequences if s.request_id not in self._decoding]
        is_preempting = len(step.sequences) - len(self._chunks) < len(batch)
        if is_preempting:
            self._decoding -= set(batch.keep({s.request_id for s in step.sequences}))
        is_waiting = len(self._jobs) > len(batch)
        self._is_blocked = is_waiting and not self._chunks and not is_preempting
        self._first_iteration = batch.iteration
        self._end_iteration = batch.iteration + 1 + self._governor.drafts
        if self._chunks:
            self._wake_at(now + self._mixed_s())
        else:
            self._stretch_out(self._factor())

    def _num_drafts(self) -> int:
        """How many iterations the next step may have beyond its first."""
        num_decoding = len(self._batch)
        is_waiting = len(self._jobs) > num_decoding
        if not num_decoding or (is_waiting and not self._is_blocked):
            return 0
        config = self.scheduler.config
        iterations = min(
            MAX_ITERATIONS,
            config.max_num_batched_tokens // num_decoding,
            self.scheduler.num_free_blocks // num_decoding * config.block_size,
        )
        if is_waiting:
            iterations = min(iterations, self._batch.first_ending - self._batch.iteration)
        return max(0, iterations - 1)

    def _mixed_s(self) -> float:
        """How long one iteration with chunks takes."""
        lengths = [(len(s.token_ids), s.start) for s in self._chunks]
        prompt_tokens = sum(length for length, _ in lengths)
        pairs = sum(length * (start + length / 2) for length, start in lengths)
        times = self.profile.times
        return self._factor() * times.iteration_s(
            prompt_tokens, pairs, len(self._batch), self._batch.kv
        )

    def _factor(self) -> float:
        noise = self.profile.times.noise
        if not noise:
            return self.factor
        iterations = self._end_iteration - self._first_iteration
        return self.factor * max(0.1, 1 + self._random.gauss(0, noise / sqrt(iterations)))

    def _stretch_out(self, factor: float) -> None:
        """From now to the next end of a sequence, or of the leap."""
        batch = self._batch
        self._stretch = Stretch(self.profile.times, len(batch), batch.kv, self._clock.now, factor)
        self._wake_at(self._stretch.end_s(self._next_iteration() - batch.iteration))

    def _next_iteration(self) -> int:
        return min(self._batch.first_ending, self._end_iteration)

    def _cut(self, stretch: Stretch) -> None:
        """The leap ends with the iteration that runs."""
        end = self._batch.iteration + stretch.done(self._clock.now) + 1
        if end < self._next_iteration():
            self._wake_at(stretch.end_s(end - self._batch.iteration))
        self._end_iteration = min(end, self._end_iteration)

    def _wake_at(self, when: float) -> None:
        self._due_s = when
        self._clock.at(when, self._wake)

    def _wake(self) -> None:
        if self._clock.now != self._due_s:
            return  # the step was cut, or the engine crashed
        if self._stretch is None:
            self._complete(self._advance_mixed())
            return
        ended = self._settle(self._stretch, self._next_iteration() - self._batch.iteration)
        if len(self._batch) and self._batch.iteration < self._end_iteration:
            self._stretch_out(self._stretch.factor)
            self._tell_ends(ended)
        else:
            self._complete(ended)

    def _settle(self, stretch: Stretch, iterations: int) -> list[str]:
        """So many iterations of a stretch are done, and the rest is a stretch by itself."""
        if not iterations:
            return []
        end_s = stretch.end_s(iterations)
        tokens = iterations * stretch.sequences
        self._itl_s.add((end_s - stretch.begin_s) / iterations, tokens)
        self._leap_tokens += tokens
        ended = self._batch.advance(iterations)
        self._stretch = Stretch(
            stretch.times, stretch.sequences, self._batch.kv, end_s, stretch.factor
        )
        return ended

    def _advance_mixed(self) -> list[str]:
        if self._batch:
            self._itl_s.add(self._clock.now - self._begin_s, len(self._batch))
        return self._batch.advance(1)

    def _complete(self, ended: list[str]) -> None:
        """The step is over: the scheduler takes it in, and the next one starts."""
        assert self._step is not None
        self._stretch = None  # whoever is told now and sends a request does not cut anything
        tokens = self._batch.iteration - self._first_iteration
        self.scheduler.complete(self._step, everyone(tokens), self._clock.now)
        self._tell_ends(ended)
        self._join([s.request_id for s in self._chunks if s.is_sampled])
        if not self._jobs:
            self._drained()
        self._decoding.intersection_update(self._jobs)
        self._is_blocked = self._is_blocked and not ended
        self._start()

    def _join(self, request_ids: list[str]) -> None:
        """Whose last chunk is computed: each has a token of this iteration."""
        for request_id in request_ids:
            request, sequence = (job := self._jobs[request_id]).request, job.sequence
            if request.first_token_s is None:
                request.first_token_s = self._clock.now
                request.cached_tokens = sequence.num_cached_tokens
                self._ttft_s.add(self._clock.now - sequence.arrival_s)
                self._listener.began(request)
            to_come = sequence.sampling.max_tokens - sequence.num_output_tokens
            if to_come:
                self._batch.join(request_id, sequence.num_tokens, to_come)
                self._decoding.add(request_id)
            else:
                self._tell_ends([request_id])

    def _tell_ends(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            job = self._jobs.pop(request_id)
            self._finished += 1
            self._finished_tokens += job.sequence.sampling.max_tokens
            job.request.end_s = self._clock.now
            self._listener.ended(job.request)
