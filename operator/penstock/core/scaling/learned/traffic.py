"""Arrivals between two observations, and means of the requests: lengths, cached prompt tokens, KV tokens."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from penstock.core.scaling.learned.capacity import Mix
from penstock.core.scaling.signals import EngineReading, GatewayReading, Missing, Observation

# Means fade by 63% over so many requests: enough for a mean of heavy-tailed lengths.
MEMORY_REQUESTS = 300.0


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean of a quantity, in which the last MEMORY_REQUESTS count most. weight: number of values."""

    value: float = 0.0
    weight: float = 0.0

    def updated(self, total: float, count: float) -> "Mean":
        """Add `count` values that sum up to `total`. Either may be zero, as it may be counted later."""
        known = min(self.weight, MEMORY_REQUESTS)
        weight = known + count
        return self if weight <= 0 else Mean((self.value * known + total) / weight, weight)


NOTHING = Mean()
# Priors of the mean output in tokens and of `Mix.held`, with the number of requests that they count for.
FIRST_OUTPUT = Mean(200.0, 2.0)
FIRST_HELD = Mean(1.0, 10.0)

Pair = tuple[EngineReading, EngineReading]


@dataclass(frozen=True, slots=True)
class Readings:
    """Last readings of the gateway and of the ready engines, without missing ones. engines: by pod."""

    gateway: GatewayReading | None = None
    engines: Mapping[str, EngineReading] = field(default_factory=dict)

    def updated(self, seen: Observation) -> "Readings":
        """Replace the readings by those of an observation that are not missing."""
        gateway = seen.gateway if isinstance(seen.gateway, GatewayReading) else self.gateway
        engines = {}
        for pod in seen.ready:
            reading = pod.reading
            known = reading if isinstance(reading, EngineReading) else self.engines.get(pod.name)
            if known is not None:
                engines[pod.name] = known
        return Readings(gateway, engines)

    def of_variant(self, variant: str, seen: Observation) -> list[EngineReading]:
        """Readings of the variant's ready engines."""
        ready = (pod.name for pod in seen.ready if pod.variant == variant)
        return [self.engines[name] for name in ready if name in self.engines]

    def are_older_than(self, seen: Observation) -> bool:
        """Whether an observation has newer metrics. Unchanged counters of the same time are no idleness."""
        if isinstance(seen.gateway, Missing):
            return False
        if seen.gateway is not None:
            return self.gateway is None or self.gateway.at_s < seen.gateway.at_s
        last_s = max((reading.at_s for reading in self.engines.values()), default=-math.inf)
        return any(reading.at_s > last_s for reading in seen.readings)

    def pairs(self, seen: Observation) -> dict[str, Pair]:
        """Last and present reading of each engine that did not restart in between, by pod."""
        found = {}
        for pod in seen.ready:
            old, new = self.engines.get(pod.name), pod.reading
            if old and isinstance(new, EngineReading) and _is_same_process(old, new):
                found[pod.name] = old, new
        return found


@dataclass(frozen=True, slots=True)
class Traffic:
    """Arrivals between the last two observations, and means per request."""

    # prompt, output: tokens, by the gateway's arrivals and by the engines
    prompt: Mean = NOTHING
    output: Mean = FIRST_OUTPUT
    miss: Mean = NOTHING  # uncached fraction of the prompt
    held: Mean = FIRST_HELD  # as in `Mix`
    answered: Mean = NOTHING  # output tokens of ended requests, by the gateway
    attended: Mean = NOTHING  # sum of the tokens that these attend to
    # arrivals, prompt_tokens: between the last two observations
    arrivals: int = 0
    prompt_tokens: int = 0
    ended: int = 0  # requests since the first observation
    running: int = 0  # at the last observation

    @property
    def output_tokens(self) -> float:
        """Mean output. While few requests have ended, each running one counts as half of a request."""
        halves = max(0, self.running - self.ended) / 2
        known = self.output.weight
        return max(1.0, self.output.value * known / (known + halves))

    @property
    def mix(self) -> Mix | None:
        """The mean request; None before the first one."""
        if not self.prompt.weight:
            return None
        uncached = self.prompt.value * (self.miss.value if self.miss.weight else 1.0)
        mix = Mix(self.prompt.value, uncached, self.output_tokens, self.held.value)
        if not self.answered.value:
            return mix
        attended = self.attended.value / self.answered.value
        return replace(mix, attended=attended / mix.halfway_tokens)

    def updated(self, then: Readings, seen: Observation, pairs: Collection[Pair]) -> "Traffic":
        """Add an observation. then: the readings before it. pairs: from `Readings.pairs`."""
        arrivals, prompt_tokens = _arrived(then, seen, pairs)
        prompt = self.prompt.updated(prompt_tokens, arrivals)
        ended = output_tokens = prompts = cached = 0
        for old, new in pairs:
            ended += new.finished - old.finished
            output_tokens += new.output_tokens - old.output_tokens
            prompts += new.prompt_tokens - old.prompt_tokens
            cached += new.cached_tokens - old.cached_tokens
        # Tokens of all requests over the number of ended ones: while long requests run, the mean of ended
        # ones alone is too small (estimator of a censored exponential distribution).
        output = self.output.updated(output_tokens, ended)
        miss = self.miss
        if prompts > 0 and prompt.value:
            share = prompts / prompt.value
            miss = miss.updated(share * max(0.0, 1 - cached / prompts), share)
        running = sum(reading.running for reading in seen.readings)
        held = self.held
        if running and prompt.value:
            alone = Mix(prompt.value, 0.0, self.output_tokens).halfway_tokens
            kv_tokens = sum(reading.kv_tokens for reading in seen.readings)
            held = held.updated(ended * kv_tokens / (running * alone), ended)
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
            self.answered.updated(new.output_tokens - old.output_tokens, ended),
            self.attended.updated(new.attended_tokens - old.attended_tokens, ended),
        )


def _is_same_process(old: EngineReading, new: EngineReading) -> bool:
    """Whether no counter decreased, as it does when an engine restarts."""
    return (
        new.finished >= old.finished
        and new.prompt_tokens >= old.prompt_tokens
        and new.cached_tokens >= old.cached_tokens
        and new.output_tokens >= old.output_tokens
    )


def _arrived(then: Readings, seen: Observation, pairs: Collection[Pair]) -> tuple[int, int]:
    """Arrived requests and prompt tokens, by the gateway; without a gateway, those that engines accepted."""
    now = seen.gateway
    if isinstance(now, GatewayReading) and then.gateway is not None:
        if now.arrivals < then.gateway.arrivals:  # it restarted
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
