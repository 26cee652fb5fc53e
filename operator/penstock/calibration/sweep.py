"""The sweep: prompts alone, sequences that decode together, and clients that come and go.

prompts of 16 to all tokens       how long a prompt takes
1 to max_num_seqs at once         how long an iteration of so many sequences takes
1 to 8 clients, with pauses       that both are true together, and of an engine as traffic finds it
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from random import Random

from penstock.calibration.fit import Sample
from penstock.calibration.probe import Answer, Prober
from penstock.calibration.work import decoding, waiting

SHORT_TOKENS = 16
# Iterations in which all sequences of a sample decode: enough for a mean, few enough for a sweep.
DECODE_ITERATIONS = 32
REPEATS = 3
# Traffic finds an engine that was idle for a while, and its host's caches with what others left there:
# 16 tokens behind each other took 11 ms, after pauses of 0.1 and of 0.5 s 16 and 21 ms.
PAUSE_S = 0.5
MOST_CLIENTS = 8
VISITS = 24  # of all clients together
MOST_ANSWER_TOKENS = 128


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


def visits(clients: int, limits: Limits, random: Random) -> Iterator[tuple[float, int, int]]:
    """(pause in seconds, prompt tokens, tokens of the answer) of one of so many clients.

    A length is as likely as twice of it, from a 64th to all of a quarter of the room.
    """
    quarter = min(limits.max_model_len, limits.kv_tokens // clients) // 4
    for _ in range(VISITS // clients):
        prompt = quarter * 64 ** -random.random()
        answer = min(quarter, MOST_ANSWER_TOKENS) * 16 ** -random.random()
        yield random.expovariate(1 / PAUSE_S), max(1, round(prompt)), max(2, round(answer))


async def sweep(prober: Prober, limits: Limits, say: Callable[[str], None]) -> list[Sample]:
    """Raises ProbeFailed. Lasts for some minutes at most on any engine worth serving with."""
    await prober.ask(SHORT_TOKENS, DECODE_ITERATIONS)  # the first one warms up
    samples = []
    for length in prompts(limits):
        say(f"a prompt of {length} tokens")
        samples += [await alone(prober, length, limits) for _ in range(REPEATS)]
    for sequences, length in batches(limits):
        say(f"{sequences} sequences of {length} tokens and more")
        samples.append(await together(prober, sequences, length, limits))
    clients = 1
    while clients <= min(MOST_CLIENTS, limits.max_num_seqs):
        say(f"{clients} clients that come and go")
        samples += await traffic(prober, clients, limits)
        clients *= 2
    return samples


async def alone(prober: Prober, length: int, limits: Limits) -> Sample:
    """A prompt on an idle engine."""
    await asyncio.sleep(PAUSE_S)
    answer = await prober.ask(length, 1)
    return waiting(answer, [answer], limits.max_num_batched_tokens)


async def together(prober: Prober, sequences: int, length: int, limits: Limits) -> Sample:
    """From the second token of the last to begin to the end of the first to end: all of them decode."""
    tokens = num_tokens(sequences, length, limits)
    answers = await asyncio.gather(*(prober.ask(length, tokens) for _ in range(sequences)))
    first = min(answers, key=lambda answer: answer.token_s[-1])
    return decoding(first, answers, max(answer.token_s[1] for answer in answers))


async def traffic(prober: Prober, clients: int, limits: Limits) -> list[Sample]:
    """Of each answer the wait for its first token, and the rest."""

    async def client(random: Random) -> list[Answer]:
        answers = []
        for pause_s, prompt, tokens in visits(clients, limits, random):
            await asyncio.sleep(pause_s)
            answers.append(await prober.ask(prompt, tokens))
        return answers

    draws = Random(clients)  # noqa: S311 - lengths, not secrets
    of_each = await asyncio.gather(*(client(Random(draws.random())) for _ in range(clients)))  # noqa: S311
    answers = [answer for those in of_each for answer in those]
    waits = [waiting(answer, answers, limits.max_num_batched_tokens) for answer in answers]
    rests = [decoding(answer, answers, answer.token_s[0]) for answer in answers]
    return waits + [rest for rest in rests if rest.time_s > 0]  # all in one event tells nothing
