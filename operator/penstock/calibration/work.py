"""From answers, as they came token by token, to what the engine computed meanwhile."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from penstock.calibration.fit import Sample
from penstock.calibration.probe import Answer


@dataclass(frozen=True, slots=True)
class Part:
    """Of one answer, in a stretch of time: tokens that were decoded, the first one apart, and what each
    attended to on average. has_begun: its first token was among them."""

    tokens: int
    context: float
    has_begun: bool


def part(answer: Answer, begin_s: float, end_s: float) -> Part:
    before = bisect_right(answer.token_s, begin_s)
    until = bisect_right(answer.token_s, end_s)
    first = max(1, before)
    return Part(
        max(0, until - first),
        answer.prompt_tokens + (first + until) / 2,
        before == 0 and until > 0,
    )


def decoding(answer: Answer, answers: Sequence[Answer], begin_s: float) -> Sample:
    """From begin_s, when it decodes, to its end: each of its tokens is an iteration, and so is told what the
    others did. answers: all there were, this one too."""
    end_s = answer.token_s[-1]
    parts = [part(other, begin_s, end_s) for other in answers]
    prompts = [a.prompt_tokens for a, p in zip(answers, parts, strict=True) if p.has_begun]
    return Sample(
        iterations=part(answer, begin_s, end_s).tokens,
        prompt_tokens=sum(prompts),
        pairs=sum(length * length / 2 for length in prompts),
        sequences=sum(p.tokens for p in parts),
        kv_tokens=sum(p.tokens * p.context for p in parts),
        time_s=end_s - begin_s,
    )


def waiting(answer: Answer, answers: Sequence[Answer], max_num_batched_tokens: int) -> Sample:
    """Until its first token, beside others that decode or begin as well. answers: as above."""
    end_s = answer.token_s[0]
    parts = [part(other, answer.sent_s, end_s) for other in answers]
    prompts = [a.prompt_tokens for a, p in zip(answers, parts, strict=True) if p.has_begun]
    most = max(p.tokens for p in parts)
    # It comes while an iteration of the others runs, and waits for half of it on average.
    iterations = max(ceil(answer.prompt_tokens / max_num_batched_tokens), most - 0.5)
    share = iterations / most if most else 0.0
    return Sample(
        iterations=iterations,
        prompt_tokens=sum(prompts),
        pairs=sum(length * length / 2 for length in prompts),
        sequences=share * sum(p.tokens for p in parts),
        kv_tokens=share * sum(p.tokens * p.context for p in parts),
        requests=1,
        time_s=end_s - answer.sent_s,
    )
