"""The calibration sweep: single prompts, batches that decode together, and mixed traffic.

requests                                 measures
prompts of 16 tokens to the maximum      the time of prefill
1 to max_num_seqs sequences at once      the time of an iteration, by its number of sequences
1 to 8 clients, with pauses              both together, with caches as cold as real traffic leaves them
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from random import Random

from penstock.calibration.facts import Facts
from penstock.calibration.fit import Sample
from penstock.calibration.probe import Answer, ProbeFailed, Prober
from penstock.calibration.work import decoding, waiting

SHORT_TOKENS = 16
# Iterations in which all sequences of a sample decode: enough for a mean, few enough for a short sweep.
DECODE_ITERATIONS = 32
REPEATS = 3
# Real traffic reaches an engine that was idle for a while, with cold caches: a prompt of 16 tokens took
# 11 ms back to back, 16 ms after a pause of 0.1 s, and 21 ms after one of 0.5 s.
PAUSE_S = 0.5
MAX_CLIENTS = 8
NUM_TRAFFIC_REQUESTS = 24  # of all clients together
MAX_ANSWER_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """The engine's limits, as it was started. kv_tokens: size of its KV cache in tokens."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_tokens: int

    @classmethod
    def of(
        cls,
        engine: Facts,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
    ) -> "Limits":
        """Limits that the engine reports, unless they are given. Raises ProbeFailed if it does not."""
        seqs = max_num_seqs or engine.max_num_seqs
        tokens = max_num_batched_tokens or engine.max_num_batched_tokens
        if seqs is None or tokens is None:
            raise ProbeFailed(
                "the engine does not report how many sequences and tokens a step has: give "
                "--max-num-seqs and --max-num-batched-tokens"
            )
        return cls(engine.max_model_len, seqs, tokens, engine.kv_tokens)


def prompts(limits: Limits) -> Iterator[int]:
    """Yield prompt lengths to measure: from SHORT_TOKENS, multiplied by 4, to the longest possible."""
    length = SHORT_TOKENS
    longest = limits.max_model_len - DECODE_ITERATIONS
    while length < longest:
        yield length
        length *= 4
    yield longest


def batches(limits: Limits) -> Iterator[tuple[int, int]]:
    """Yield batches to measure as (sequences, prompt tokens of each), as far as the KV cache suffices.

    The number of sequences doubles, each time with short and with long prompts.
    """
    sequences = 1
    while sequences <= limits.max_num_seqs:
        max_tokens = min(limits.max_model_len, limits.kv_tokens // sequences)
        long = max(SHORT_TOKENS, max_tokens // 2)
        for length in sorted({SHORT_TOKENS, long}):
            if length + num_tokens(sequences, length, limits) <= max_tokens:
                yield sequences, length
        sequences *= 2


def num_tokens(sequences: int, length: int, limits: Limits) -> int:
    """Tokens to generate per sequence, so that all decode together for DECODE_ITERATIONS iterations.

    The first sequence must still decode when the prefill of the last one ends.
    """
    prefill_iterations = ceil(
        sequences * length / max(1, limits.max_num_batched_tokens - sequences)
    )
    return prefill_iterations + DECODE_ITERATIONS


def visits(clients: int, limits: Limits, random: Random) -> Iterator[tuple[float, int, int]]:
    """Yield (pause in seconds, prompt tokens, answer tokens) of one client's requests.

    Prompt lengths are log-uniform, from 1/64 to all of a quarter of a client's share of the cache.
    """
    quarter = min(limits.max_model_len, limits.kv_tokens // clients) // 4
    for _ in range(NUM_TRAFFIC_REQUESTS // clients):
        prompt = quarter * 64 ** -random.random()
        answer = min(quarter, MAX_ANSWER_TOKENS) * 16 ** -random.random()
        yield random.expovariate(1 / PAUSE_S), max(1, round(prompt)), max(2, round(answer))


async def sweep(prober: Prober, limits: Limits, say: Callable[[str], None]) -> list[Sample]:
    """Run the sweep, which takes a few minutes at most, and return its samples. Raises ProbeFailed.

    say: called with a text before each measurement.
    """
    await prober.ask(SHORT_TOKENS, DECODE_ITERATIONS)  # warm-up
    samples = []
    for length in prompts(limits):
        say(f"a prompt of {length} tokens")
        samples += [await alone(prober, length, limits) for _ in range(REPEATS)]
    for sequences, length in batches(limits):
        say(f"{sequences} sequences with prompts of {length} tokens")
        samples.append(await together(prober, sequences, length, limits))
    clients = 1
    while clients <= min(MAX_CLIENTS, limits.max_num_seqs):
        say(f"{clients} clients with pauses")
        samples += await traffic(prober, clients, limits)
        clients *= 2
    return samples


async def alone(prober: Prober, length: int, limits: Limits) -> Sample:
    """Measure a prompt on an idle engine."""
    await asyncio.sleep(PAUSE_S)
    answer = await prober.ask(length, 1)
    return waiting(answer, [answer], limits.max_num_batched_tokens)


async def together(prober: Prober, sequences: int, length: int, limits: Limits) -> Sample:
    """Measure the interval in which all sequences decode.

    It starts at the second token of the last sequence to start, and ends with the first to end.
    """
    tokens = num_tokens(sequences, length, limits)
    answers = await asyncio.gather(*(prober.ask(length, tokens) for _ in range(sequences)))
    first = min(answers, key=lambda answer: answer.token_s[-1])
    return decoding(first, answers, max(answer.token_s[1] for answer in answers))


async def traffic(prober: Prober, clients: int, limits: Limits) -> list[Sample]:
    """Measure mixed traffic: for each answer the wait for its first token, and its decoding."""

    async def client(random: Random) -> list[Answer]:
        answers = []
        for pause_s, prompt, tokens in visits(clients, limits, random):
            await asyncio.sleep(pause_s)
            answers.append(await prober.ask(prompt, tokens))
        return answers

    draws = Random(clients)  # noqa: S311 - lengths, not secrets
    by_client = await asyncio.gather(*(client(Random(draws.random())) for _ in range(clients)))  # noqa: S311
    answers = [answer for those in by_client for answer in those]
    waits = [waiting(answer, answers, limits.max_num_batched_tokens) for answer in answers]
    decodes = [decoding(answer, answers, answer.token_s[0]) for answer in answers]
    return waits + [each for each in decodes if each.time_s > 0]  # 0: all tokens in one event
