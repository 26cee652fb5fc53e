"""Computes the work of an engine within an interval from the token times of its answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from penstock.calibration.fit import Sample
from penstock.calibration.probe import Answer


@dataclass(frozen=True, slots=True)
class Part:
    """The work on one answer within an interval.

    tokens: decoded, without the first one, which is prefill's. context: tokens that each of them
    attended to, on average. prompt_tokens: the prompt's, if its first token arrived in the interval;
    else 0.
    """

    tokens: int
    context: float
    prompt_tokens: int

    @property
    def pairs(self) -> float:
        """Attention pairs of a prompt token and an earlier one."""
        return self.prompt_tokens * self.prompt_tokens / 2


def part(answer: Answer, begin_s: float, end_s: float) -> Part:
    """Compute the work on one answer between two times."""
    before, until = answer.tokens_until(begin_s), answer.tokens_until(end_s)
    first = max(1, before)
    has_started = before == 0 and until > 0
    return Part(
        max(0, until - first),
        answer.prompt_tokens + (first + until) / 2,
        answer.prompt_tokens if has_started else 0,
    )


def decoding(answer: Answer, answers: Sequence[Answer], begin_s: float) -> Sample:
    """Sample of an answer's decoding from begin_s, when it decodes already, to its end.

    Each of its tokens is one iteration. answers: all answers, for the work of the others meanwhile.
    """
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
    """Sample of an answer's wait for its first token, with the work of the others meanwhile.

    answers: all answers, this one included.
    """
    end_s = answer.token_s[0]
    parts = [part(other, answer.sent_s, end_s) for other in answers]
    max_tokens = max(p.tokens for p in parts)
    # The request arrives during an iteration of the others, and waits for half of it on average.
    iterations = max(ceil(answer.prompt_tokens / max_num_batched_tokens), max_tokens - 0.5)
    share = iterations / max_tokens if max_tokens else 0.0
    return Sample(
        iterations=iterations,
        prompt_tokens=sum(p.prompt_tokens for p in parts),
        pairs=sum(p.pairs for p in parts),
        sequences=share * sum(p.tokens for p in parts),
        kv_tokens=share * sum(p.tokens * p.context for p in parts),
        requests=1,
        time_s=end_s - answer.sent_s,
    )
