"""Engines whose iterations are looked at, each for as long as it takes to count its prompts right.

A prompt's tokens are counted with its first token. Between two readings that are close, one that was
begun before or is not finished yet is a good part of all. An engine under full load makes that worse: it
gives prompts what time decoding leaves, so that every iteration takes as long as the others, and whatever
error there is in the tokens looks as if prompts cost nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.core.signals import EngineReading
from penstock.core.sizing.iteration import Fit, Window
from penstock.core.sizing.traffic import Pair

# So many are looked at at a time; the others' turn comes.
MAX_SPANS = 8
# Among so many prompts, the one that is cut at each end counts little.
ENOUGH_PROMPTS = 300


@dataclass(frozen=True, slots=True)
class Span:
    """first: its readings since then; kv_tokens: their sum."""

    first: EngineReading
    readings: int
    kv_tokens: float

    @classmethod
    def begun(cls, reading: EngineReading) -> "Span":
        return cls(reading, 1, reading.kv_tokens)

    def after(self, reading: EngineReading) -> "Span":
        return Span(self.first, self.readings + 1, self.kv_tokens + reading.kv_tokens)

    def is_counted(self, last: EngineReading) -> bool:
        """No prompt was half computed at either end, or there were enough of them."""
        prompts = last.ttft_s.count - self.first.ttft_s.count
        return prompts >= ENOUGH_PROMPTS or not (_has_prompts(self.first) or _has_prompts(last))

    def window(self, last: EngineReading, prompt_tokens: float) -> Window | None:
        mean = self.kv_tokens / self.readings
        return Window.between(self.first, last, mean, prompt_tokens)


@dataclass(frozen=True, slots=True)
class Watch:
    """fit: of what was seen so far. spans: by pod. turn: of whose engine comes next."""

    fit: Fit
    spans: Mapping[str, Span] = field(default_factory=dict)
    turn: int = 0

    def kept(self) -> "Watch":
        """As it is written down: who goes on from it looks anew."""
        return Watch(replace(self.fit, beyond=()))

    def after(self, pairs: Mapping[str, Pair], prompt_tokens: float) -> "Watch":
        """pairs: by pod, the last reading and the present one. prompt_tokens: of the mean request."""
        fit, spans = self.fit, {}
        for pod, span in self.spans.items():
            if pod not in pairs:
                continue
            _, last = pairs[pod]
            span = span.after(last)
            if span.is_counted(last):
                window = span.window(last, prompt_tokens)
                fit = fit if window is None else fit.after(window)
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
                spans[pod] = Span.begun(pairs[pod][1])
        return Watch(fit, spans, turn)


def _has_prompts(reading: EngineReading) -> bool:
    return reading.prefill_tokens_pending > 0 or reading.waiting > 0
