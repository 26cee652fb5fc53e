"""What one look adds to the last: arrivals, the mix of requests, how often a prompt is cached."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from penstock.core.scaling.learned.capacity import Mix
from penstock.core.scaling.signals import EngineReading, GatewayReading, Missing, Observation

# Means fade by 63% over so many requests: enough for a mean of heavy-tailed lengths.
MEMORY_REQUESTS = 300.0


@dataclass(frozen=True, slots=True)
class Mean:
    """Of a quantity for each of something, where newer ones count more."""

    value: float = 0.0
    weight: float = 0.0

    def after(self, total: float, count: float) -> "Mean":
        """With `count` more that sum up to `total`; either may come before the other."""
        known = min(self.weight, MEMORY_REQUESTS)
        weight = known + count
        return self if weight <= 0 else Mean((self.value * known + total) / weight, weight)


NOTHING = Mean()
# Until requests have ended: a belief that the first few replace.
FIRST_OUTPUT = Mean(200.0, 2.0)
FIRST_HELD = Mean(1.0, 10.0)


Pair = tuple[EngineReading, EngineReading]


@dataclass(frozen=True, slots=True)
class Readings:
    """The last good ones. engines: by pod."""

    gateway: GatewayReading | None = None
    engines: Mapping[str, EngineReading] = field(default_factory=dict)

    def after(self, seen: Observation) -> "Readings":
        gateway = seen.gateway if isinstance(seen.gateway, GatewayReading) else self.gateway
        engines = {}
        for pod in seen.ready:
            reading = pod.reading
            known = reading if isinstance(reading, EngineReading) else self.engines.get(pod.name)
            if known is not None:
                engines[pod.name] = known
        return Readings(gateway, engines)

    def of_variant(self, variant: str, seen: Observation) -> list[EngineReading]:
        """Readings of the variant's engines that are ready."""
        ready = (pod.name for pod in seen.ready if pod.variant == variant)
        return [self.engines[name] for name in ready if name in self.engines]

    def are_older_than(self, seen: Observation) -> bool:
        """Whether arrivals were counted since: numbers that stand still are no sign that nobody comes."""
        if isinstance(seen.gateway, Missing):
            return False
        if seen.gateway is not None:
            return self.gateway is None or self.gateway.at_s < seen.gateway.at_s
        last_s = max((reading.at_s for reading in self.engines.values()), default=-math.inf)
        return any(reading.at_s > last_s for reading in seen.readings)

    def pairs(self, seen: Observation) -> dict[str, Pair]:
        """By pod, the last reading and the present one of each engine that did not begin anew between."""
        found = {}
        for pod in seen.ready:
            old, new = self.engines.get(pod.name), pod.reading
            if old and isinstance(new, EngineReading) and _goes_on(old, new):
                found[pod.name] = old, new
        return found


@dataclass(frozen=True, slots=True)
class Traffic:
    """arrivals and prompt_tokens: of the last look alone. Means: over hundreds of requests; held: as in
    `Mix`; answered: tokens of those that ended, by the gateway; attended: to by these.

    ended: requests, ever. running: of the last look.
    """

    prompt: Mean = NOTHING
    output: Mean = FIRST_OUTPUT
    miss: Mean = NOTHING
    held: Mean = FIRST_HELD
    answered: Mean = NOTHING
    attended: Mean = NOTHING
    arrivals: int = 0
    prompt_tokens: int = 0
    ended: int = 0
    running: int = 0

    @property
    def output_tokens(self) -> float:
        """Of a request. At first, each that runs counts as half a request: halfway on average."""
        halves = max(0, self.running - self.ended) / 2
        known = self.output.weight
        return max(1.0, self.output.value * known / (known + halves))

    @property
    def mix(self) -> Mix | None:
        """None until there was a request."""
        if not self.prompt.weight:
            return None
        uncached = self.prompt.value * (self.miss.value if self.miss.weight else 1.0)
        mix = Mix(self.prompt.value, uncached, self.output_tokens, self.held.value)
        if not self.answered.value:
            return mix
        attended = self.attended.value / self.answered.value
        return replace(mix, attended=attended / mix.halfway_tokens)

    def after(self, then: Readings, seen: Observation, pairs: Collection[Pair]) -> "Traffic":
        """then: the last good readings before those that are seen. pairs: of its engines."""
        arrivals, prompt_tokens = _arrived(then, seen, pairs)
        prompt = self.prompt.after(prompt_tokens, arrivals)
        ended = output_tokens = prompts = cached = 0
        for old, new in pairs:
            ended += new.finished - old.finished
            output_tokens += new.output_tokens - old.output_tokens
            prompts += new.prompt_tokens - old.prompt_tokens
            cached += new.cached_tokens - old.cached_tokens
        # All tokens for each that ended: the mean of those that ended alone is too short while
        # long ones still run (the estimate of a censored exponential).
        output = self.output.after(output_tokens, ended)
        miss = self.miss
        if prompts > 0 and prompt.value:
            share = prompts / prompt.value
            miss = miss.after(share * max(0.0, 1 - cached / prompts), share)
        running = sum(reading.running for reading in seen.readings)
        held = self.held
        if running and prompt.value:
            alone = Mix(prompt.value, 0.0, self.output_tokens).halfway_tokens
            kv_tokens = sum(reading.kv_tokens for reading in seen.readings)
            held = held.after(ended * kv_tokens / (running * alone), ended)
        return Traffic(
            prompt,
            output,
            miss,
            held,
            *self._answered(then, seen),
            arrivals=arrivals,
            prompt_tokens=prompt_tokens,
            ended=self.ended + ended,
            running=running,
        )

    def _answered(self, then: Readings, seen: Observation) -> tuple[Mean, Mean]:
        old, new = then.gateway, seen.gateway
        if not isinstance(new, GatewayReading) or old is None or new.ended < old.ended:
            return self.answered, self.attended
        ended = new.ended - old.ended
        return (
            self.answered.after(new.output_tokens - old.output_tokens, ended),
            self.attended.after(new.attended_tokens - old.attended_tokens, ended),
        )


def _goes_on(old: EngineReading, new: EngineReading) -> bool:
    """No counter went back: the engine did not begin anew between the two."""
    return (
        new.finished >= old.finished
        and new.prompt_tokens >= old.prompt_tokens
        and new.cached_tokens >= old.cached_tokens
        and new.output_tokens >= old.output_tokens
    )


def _arrived(then: Readings, seen: Observation, pairs: Collection[Pair]) -> tuple[int, int]:
    """Requests and prompt tokens, by the gateway; where there is none, by what engines accepted."""
    now = seen.gateway
    if isinstance(now, GatewayReading) and then.gateway is not None:
        if now.arrivals < then.gateway.arrivals:  # it began anew
            return now.arrivals, now.prompt_tokens
        return (
            now.arrivals - then.gateway.arrivals,
            max(0, now.prompt_tokens - then.gateway.prompt_tokens),
        )
    arrivals = prompt_tokens = 0
    for old, new in pairs if now is None else ():
        arrivals += new.finished + new.running + new.waiting
        arrivals -= old.finished + old.running + old.waiting
        prompt_tokens += new.prompt_tokens + new.prefill_tokens_pending
        prompt_tokens -= old.prompt_tokens + old.prefill_tokens_pending
    return max(0, arrivals), max(0, prompt_tokens)
