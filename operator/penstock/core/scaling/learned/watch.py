"""Windows over which iteration times are measured, each long enough to count its prompt tokens correctly.

An engine counts the tokens of a prompt when its first output token is ready. So in a short window, prompts
that are partly computed at its start or end are a large part of the count. Under full load the error is
worst: prompts get the time that decoding leaves, so all iterations take the same time whatever the count of
prompt tokens is, and a fit would find that prompts cost nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.core.engine_time.iteration import Fit, Window
from penstock.core.scaling.learned.traffic import Pair
from penstock.core.scaling.learned.windows import window_between
from penstock.core.scaling.signals import EngineReading

# Number of engines that are measured at a time, in turn. It bounds the time of a decision.
MAX_SPANS = 8
# Prompts in a window after which the partly computed ones at its ends count little.
ENOUGH_PROMPTS = 300
# Largest change of the batch within a window of an engine that does not report its busy time: this fraction
# of the batch, and so many sequences. Beyond it, the mean time between tokens is not the iteration time: it
# was four times as long when a flood of requests began, and prompts seemed to cost a twentieth in bursts.
ALIKE_SHARE, ALIKE = 0.5, 8


@dataclass(frozen=True, slots=True)
class Span:
    """Window that is not complete yet.

    first: reading at its start. kv_tokens: tokens in the KV cache, summed over iterations. fewest, most:
    running sequences at its readings.
    """

    first: EngineReading
    kv_tokens: float
    fewest: int
    most: int

    @classmethod
    def starting_at(cls, reading: EngineReading) -> "Span":
        return cls(reading, 0.0, reading.running, reading.running)

    def updated(self, old: EngineReading, new: EngineReading) -> "Span":
        """Add the time between two readings."""
        held = (old.kv_tokens + new.kv_tokens) / 2
        return Span(
            self.first,
            self.kv_tokens + held * (new.steps - old.steps),
            min(self.fewest, new.running),
            max(self.most, new.running),
        )

    @property
    def has_steady_batch(self) -> bool:
        """Whether the batch changed little enough. Any change is fine if the engine reports its busy time."""
        reports_time = self.first.busy_s is not None
        return reports_time or self.most - self.fewest <= ALIKE + ALIKE_SHARE * self.fewest

    def counts_prompts(self, last: EngineReading) -> bool:
        """Whether its prompt tokens are counted well enough: none is pending at its ends, or many came."""
        prompts = last.ttft_s.count - self.first.ttft_s.count
        return prompts >= ENOUGH_PROMPTS or not (_has_prompts(self.first) or _has_prompts(last))

    def window(self, last: EngineReading, prompt_tokens: float) -> Window | None:
        """The complete window; None if too little was computed in it."""
        kv_tokens = self.kv_tokens / max(1, last.steps - self.first.steps)
        return window_between(self.first, last, kv_tokens, prompt_tokens)


@dataclass(frozen=True, slots=True)
class Watch:
    """Fit of the iteration time, and the open windows. spans: by pod. turn: position of the next engine."""

    fit: Fit
    spans: Mapping[str, Span] = field(default_factory=dict)
    turn: int = 0

    def stored(self) -> "Watch":
        """The part that is stored: the fit, without open windows and outliers."""
        return Watch(replace(self.fit, beyond=()))

    def updated(self, pairs: Mapping[str, Pair], prompt_tokens: float) -> "Watch":
        """Add the readings of an observation.

        pairs: last and present reading by pod. prompt_tokens: of the mean request.
        """
        fit, spans = self.fit, {}
        for pod, span in self.spans.items():
            if pod not in pairs:
                continue
            old, last = pairs[pod]
            span = span.updated(old, last)
            if not span.has_steady_batch:
                continue
            if span.counts_prompts(last):
                window = span.window(last, prompt_tokens)
                fit = fit if window is None else fit.updated(window)
            elif _has_prompts(last) or not _has_prompts(span.first):
                spans[pod] = span
        pods = list(pairs)
        turn = self.turn
        for _ in pods:
            if len(spans) == MAX_SPANS:
                break
            pod = pods[turn % len(pods)]
            turn += 1
            if pod not in spans:
                spans[pod] = Span.starting_at(pairs[pod][1])
        return Watch(fit, spans, turn)


def _has_prompts(reading: EngineReading) -> bool:
    return reading.prefill_tokens_pending > 0 or reading.waiting > 0
