"""Engines whose iterations are looked at, each for as long as it takes to count its prompts right.

A prompt's tokens are counted with its first token. Between two readings that are close, one that was
begun before or is not finished yet is a good part of all. An engine under full load makes that worse: it
gives prompts what time decoding leaves, so that every iteration takes as long as the others, and whatever
error there is in the tokens looks as if prompts cost nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.core.scaling.learned.iteration import Fit, Window
from penstock.core.scaling.learned.traffic import Pair
from penstock.core.scaling.signals import EngineReading

# So many are looked at at a time; the others' turn comes.
MAX_SPANS = 8
# Among so many prompts, the one that is cut at each end counts little.
ENOUGH_PROMPTS = 300
# An engine that does not tell how long it was busy tells nothing of a batch that grew or shrank by more than
# this share of itself, and so many more: its tokens come from the iterations of one end, its means from all.
# The first seconds of a flooded engine looked four times slower than it is, bursts of short answers as if
# prompts cost a twentieth.
ALIKE_SHARE, ALIKE = 0.5, 8


@dataclass(frozen=True, slots=True)
class Span:
    """first: its reading then. kv_tokens: held, summed over iterations. fewest, most: sequences that
    ran in one of its readings."""

    first: EngineReading
    kv_tokens: float
    fewest: int
    most: int

    @classmethod
    def begun(cls, reading: EngineReading) -> "Span":
        return cls(reading, 0.0, reading.running, reading.running)

    def after(self, old: EngineReading, new: EngineReading) -> "Span":
        held = (old.kv_tokens + new.kv_tokens) / 2
        return Span(
            self.first,
            self.kv_tokens + held * (new.steps - old.steps),
            min(self.fewest, new.running),
            max(self.most, new.running),
        )

    @property
    def is_alike(self) -> bool:
        """Of an engine that tells how long it was busy, any batch is as good."""
        is_told = self.first.busy_s is not None
        return is_told or self.most - self.fewest <= ALIKE + ALIKE_SHARE * self.fewest

    def is_counted(self, last: EngineReading) -> bool:
        """No prompt was half computed at either end, or there were enough of them."""
        prompts = last.ttft_s.count - self.first.ttft_s.count
        return prompts >= ENOUGH_PROMPTS or not (_has_prompts(self.first) or _has_prompts(last))

    def window(self, last: EngineReading, prompt_tokens: float) -> Window | None:
        kv_tokens = self.kv_tokens / max(1, last.steps - self.first.steps)
        return Window.between(self.first, last, kv_tokens, prompt_tokens)


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
            old, last = pairs[pod]
            span = span.after(old, last)
            if not span.is_alike:
                continue
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
