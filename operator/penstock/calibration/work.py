"""From answers, as they came token by token, to what the engine computed meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from penstock.calibration.fit import Sample
from penstock.calibration.probe import Answer


@dataclass(frozen=True, slots=True)
class Part:
    """Of one answer, in a stretch of time: tokens that were decoded, the first one apart, and what each
    attended to on average. prompt_tokens: of a prompt whose first token came then, 0 otherwise."""

    tokens: int
    context: float
    prompt_tokens: int

    @property
    def pairs(self) -> float:
        return self.prompt_tokens * self.prompt_tokens / 2


def part(answer: Answer, begin_s: float, end_s: float) -> Part:
    before, until = answer.tokens_until(begin_s), answer.tokens_until(end_s)
    first = max(1, before)
    has_begun = before == 0 and until > 0
    return Part(
        max(0, until - first),
        answer.prompt_tokens + (first + until) / 2,
        answer.prompt_tokens if has_begun else 0,
    )


def decoding(answer: Answer, answers: Sequence[Answer], begin_s: float) -> Sample:
    """From begin_s, when it decodes, to its end: each of its tokens is an iteration, and so is told what the
    others did. answers: all there were, this one too."""
    end_s = answer.token_s[-1]
    parts = [part(other, begin_s, end_s) for other in answers]
    return Sample(
        iterations=part(answer, begin_s, end_s).tokens,
        prompt_tokens=sum(p.prompt_tokens for p in parts),
        pairs=sum(p.pairs for p in parts),
        sequences=sum(p.tokens for p in parts),
        kv_tokens=sum(p.tokens * p.context for p in parts),
        time_s=end_s - begin_s,
    )


def waiting(answer: Answer, answers: Sequence[Answer], max_num_batched_tokens: int) -> Sample:
    """Until its first token, beside others that decode or begin as well. answers: as above."""
    end_s = answer.token_s[0]
    parts = [part(other, answer.sent_s, end_s) for other in answers]
    most = max(p.tokens for p in parts)
    # It comes while an iteration of the others runs, and waits for half of it on average.
    iterations = max(ceil(answer.prompt_tokens / max_num_batched_tokens), most - 0.5)
    share = iterations / most if most else 0.0
    return Sample(
        iterations=iterations,
        prompt_tokens=sum(p.prompt_tokens for p in parts),
        pairs=sum(p.pairs for p in parts),
        sequences=share * sum(p.tokens for p in parts),
        kv_tokens=share * sum(p.tokens * p.context for p in parts),
        requests=1,
        time_s=end_s - answer.sent_s,
    )
