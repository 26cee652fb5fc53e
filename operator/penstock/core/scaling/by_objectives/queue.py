"""A queue that does not go: what it asks for, whatever arrivals say.

Whoever asks again only when answered (a closed loop) never asks for more than the replicas give. So
where nobody starts and requests wait, the queue itself says what is missing:

    no free place for many that wait, for longer than TTFT allows, and
        longer than such queues that went before a pod could help     -> at once
    free places, and yet a queue that cannot drain in time            -> when it has not gone for PRESSED_S

The same is true of both. One that nobody asked for before is mostly a burst: it asks for FIRST of what is
there at most, and while it does not go for twice as much each time.
"""

from dataclasses import dataclass, replace
from math import ceil

from penstock.core.scaling.by_objectives.capacity import MAX_KV_USAGE, Mix
from penstock.core.scaling.by_objectives.iteration import IterationModel
from penstock.core.scaling.signals import GatewayReading, Observation

# A queue that has not gone for so long does not go by itself: what came too early for replicas that
# were starting is served by then, or has been shed by the gateway (60 s).
PRESSED_S = 75.0
# Of those that run, how many may lack a place without more being asked for at once: a burst that fills
# the engines has gone before a pod starts.
LONG = 0.25
# How long a queue that went by itself is remembered.
MEMORY_S = 7200.0
# For what part of TTFT a queue may last and be none: where many engines run, somebody always waits.
BRIEF = 0.25
# Of the replicas there are, how many more the first time at most. ServeGen's long prompts (half a day at
# 8 to 10 replicas) cost 6 % more for the same attainment when as many again were asked for at once.
FIRST = 0.25


@dataclass(frozen=True, slots=True)
class Queue:
    """At one moment, of all ready engines and the gateway together. free: places that those who wait
    could take. drain_s: how long until the last that waits has a place. oldest_s: how long somebody
    has waited at the gateway."""

    waiting: int
    running: int
    free: float = 0.0
    drain_s: float = 0.0
    oldest_s: float = 0.0

    @classmethod
    def seen(cls, seen: Observation, model: IterationModel, mix: Mix, max_num_seqs: int) -> "Queue":
        """The queues of a service in an observation. max_num_seqs: of an engine that does not report it."""
        engines, gateway = seen.readings, seen.gateway
        waiting = seen.waiting
        oldest_s = 0.0
        if isinstance(gateway, GatewayReading):
            oldest_s = gateway.oldest_wait_s if gateway.queued else 0.0
        running = sum(reading.running for reading in engines)
        free = 0.0
        for reading in engines:
            room = MAX_KV_USAGE * reading.kv_capacity_tokens - reading.kv_tokens
            num_seqs = (reading.max_num_seqs or max_num_seqs) - reading.running
            free += max(0.0, min(num_seqs, room / mix.held_tokens))
        # Each iteration one of `output_tokens` of the sequences ends, and a prompt takes its place.
        batch = running / max(1, len(engines))
        prompts = batch / mix.output_tokens * mix.uncached_tokens
        answer_s = mix.output_tokens * model.time_s(prompts, batch, batch * mix.kv_tokens)
        return cls(waiting, running, free, waiting * answer_s / max(1, running), oldest_s)

    @property
    def is_full(self) -> bool:
        return self.waiting > self.free


@dataclass(frozen=True, slots=True)
class Wave:
    """Full queues that came and went before a pod could help: the next is likely to be of that kind until
    it has outlasted them. since_s: of the one that is there. longest_s: of those that went, the last of
    them at went_s."""

    since_s: float | None = None
    longest_s: float = 0.0
    went_s: float = 0.0

    def after(self, now_s: float, startup_s: float, *, is_full: bool) -> "Wave":
        known = self if now_s - self.went_s < MEMORY_S else Wave(self.since_s)
        if is_full:
            return known if known.since_s is not None else replace(known, since_s=now_s)
        if known.since_s is None:
            return known
        lasted_s = now_s - known.since_s
        if lasted_s >= startup_s:
            return replace(known, since_s=None)
        return Wave(None, max(lasted_s, known.longest_s), now_s)


NO_WAVE = Wave()


@dataclass(frozen=True, slots=True)
class Pressure:
    """since_s: since when requests wait though no replica is starting. full_s: since when there is no
    place for all of them either. is_backlog: they came too early for replicas that were starting, and
    are to be served by those first. wave: of the full queues, whoever starts. asked: how often already
    since none waited."""

    since_s: float | None = None
    full_s: float | None = None
    is_backlog: bool = False
    wave: Wave = NO_WAVE
    asked: int = 0

    def after(
        self,
        queue: Queue,
        now_s: float,
        ttft_s: float,
        startup_s: float,
        *,
        is_starting: bool = False,
    ) -> "Pressure":
        """startup_s: how long a pod needs."""
        is_queue = queue.drain_s > BRIEF * ttft_s
        wave = self.wave.after(now_s, startup_s, is_full=is_queue and queue.is_full)
        if is_starting:
            asked = self.asked if is_queue else 0
            return Pressure(is_backlog=queue.is_full, wave=wave, asked=asked)
        if not is_queue:
            return Pressure(wave=wave)
        since_s = now_s if self.since_s is None else self.since_s
        if not queue.is_full:
            return Pressure(since_s, wave=wave, asked=self.asked)
        full_s = now_s if self.full_s is None and not self.is_backlog else self.full_s
        return replace(self, since_s=since_s, full_s=full_s, wave=wave)

    def answered(self, now_s: float, queue: Queue) -> "Pressure":
        """More were asked for: what waits is theirs."""
        return Pressure(now_s, is_backlog=queue.is_full, wave=self.wave, asked=self.asked + 1)

    def more(self, queue: Queue, current: int) -> int:
        """How many replicas are asked for beside those there are."""
        most = current * min(1.0, FIRST * 2.0**self.asked)
        return ceil(min(most, current * queue.waiting / max(1, queue.running)))

    def lasted_s(self, now_s: float) -> float:
        return 0.0 if self.since_s is None else now_s - self.since_s

    def is_lasting(self, now_s: float) -> bool:
        """Too long for fewer replicas."""
        return self.lasted_s(now_s) >= PRESSED_S / 3

    def lacks_places(self, queue: Queue, now_s: float, ttft_s: float) -> bool:
        outlasts = max(queue.drain_s, queue.oldest_s) > ttft_s
        is_long = queue.waiting - queue.free > LONG * queue.running
        enough_s = max(ttft_s, self.wave.longest_s)
        return outlasts and is_long and self.full_s is not None and now_s - self.full_s >= enough_s

    def lacks_time(self, queue: Queue, now_s: float, ttft_s: float) -> bool:
        """In deadline order who is late waits for a quieter moment: a few always do."""
        enough_s = max(PRESSED_S, self.wave.longest_s)
        return self.lasted_s(now_s) >= enough_s and queue.drain_s > ttft_s
