"""The sweep: prompts alone, sequences that decode together, and prompts among these.

prompts of 16 to all tokens       how long a prompt takes
1 to max_num_seqs at once         how long an iteration of so many sequences takes
prompts while others decode       that both are true together
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from statistics import median

from penstock.calibration.fit import Sample
from penstock.calibration.probe import Answer, Prober

SHORT_TOKENS = 16
# Iterations in which all sequences of a sample decode: enough for a mean, few enough for a sweep.
DECODE_ITERATIONS = 32
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine was started with."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_tokens: int


def prompts(limits: Limits) -> Iterator[int]:
    """Lengths to try: from short ones, each four times the one before, to the longest."""
    length = SHORT_TOKENS
    longest = limits.max_model_len - DECODE_ITERATIONS
    while length < longest:
        yield length
        length *= 4
    yield longest


def batches(limits: Limits) -> Iterator[tuple[int, int]]:
    """(sequences, prompt tokens of each): doubling, short and long, as far as the cache goes."""
    sequences = 1
    while sequences <= limits.max_num_seqs:
        room = min(limits.max_model_len, limits.kv_tokens // sequences)
        long = max(SHORT_TOKENS, room // 2)
        for length in sorted({SHORT_TOKENS, long}):
            if length + num_tokens(sequences, length, limits) <= room:
                yield sequences, length
        sequences *= 2


def num_tokens(sequences: int, length: int, limits: Limits) -> int:
    """So many that the first sequence still decodes when the last has its first token, and after."""
    filling = ceil(sequences * length / max(1, limits.max_num_batched_tokens - sequences))
    return filling + DECODE_ITERATIONS


async def sweep(prober: Prober, limits: Limits, say: Callable[[str], None]) -> list[Sample]:
    """Raises ProbeFailed. Lasts for some minutes at most on any engine worth serving with."""
    await prober.ask(SHORT_TOKENS, DECODE_ITERATIONS)  # the first one warms up
    samples = []
    for length in prompts(limits):
        say(f"a prompt of {length} tokens")
        samples.append(await alone(prober, length, limits))
    for sequences, length in batches(limits):
        say(f"{sequences} sequences of {length} tokens and more")
        samples.append(await together(prober, sequences, length, limits))
    middle = min(8, limits.max_num_seqs // 2)
    for length in list(prompts(limits))[1:-1]:
        say(f"a prompt of {length} tokens among {middle} sequences")
        samples.append(await among(prober, middle, length, limits))
    return samples


async def alone(prober: Prober, length: int, limits: Limits) -> Sample:
    """A prompt on an idle engine: the median of some."""
    took_s = [(await prober.ask(length, 1)).ttft_s for _ in range(REPEATS)]
    return Sample(
        iterations=ceil(length / limits.max_num_batched_tokens),
        prompt_tokens=length,
        pairs=length * length / 2,
        requests=1,
        time_s=median(took_s),
    )


async def together(prober: Prober, sequences: int, length: int, limits: Limits) -> Sample:
    """From the second token of the last to begin to the end of the first to end."""
    tokens = num_tokens(sequences, length, limits)
    answers = await asyncio.gather(*(prober.ask(length, tokens) for _ in range(sequences)))
    return decoding(answers)


def decoding(answers: list[Answer]) -> Sample:
    """The stretch in which all of them decode. Iterations are counted on the one that ends it."""
    first = min(answers, key=lambda answer: answer.token_s[-1])
    begin_s = max(answer.token_s[1] for answer in answers)
    end_s = first.token_s[-1]
    iterations = len(first.token_s) - first.tokens_until(begin_s)
    contexts = sum(
        a.prompt_tokens + (a.tokens_until(begin_s) + a.tokens_until(end_s)) / 2 for a in answers
    )
    return Sample(
        iterations=iterations,
        sequences=iterations * len(answers),
        kv_tokens=iterations * contexts,
        time_s=end_s - begin_s,
    )


async def among(prober: Prober, sequences: int, length: int, limits: Limits) -> Sample:
    """A prompt while others decode: they take part in each of its iterations."""
    chunk = max(1, limits.max_num_batched_tokens - sequences)
    iterations = ceil(length / chunk)
    others = asyncio.gather(
        *(prober.ask(SHORT_TOKENS, REPEATS * (iterations + 8) + 32) for _ in range(sequences))
    )
    await asyncio.sleep(0)  # they are sent first
    await prober.ask(SHORT_TOKENS, 2)  # behind it all others decode
    answers = [await prober.ask(length, 1) for _ in range(REPEATS)]
    beside = await others
    answer = sorted(answers, key=lambda a: a.ttft_s)[REPEATS // 2]
    contexts = sum(SHORT_TOKENS + o.tokens_until(answer.sent_s) for o in beside)
    return Sample(
        # It comes while an iteration runs, and waits for half of it on average.
        iterations=iterations + 0.5,
        prompt_tokens=length,
        pairs=length * length / 2,
        sequences=(iterations + 0.5) * sequences,
        kv_tokens=(iterations + 0.5) * contexts,
        requests=1,
        time_s=answer.ttft_s,
    )
