"""Measures the token gaps of streams while long prompts arrive, with and without a TPOT objective.

    python -m benchmarks.engine.tpot_objective [--rounds 10] [--tpot-s 0.1]

It runs a real engine with a small random model. In each round STREAMS answers are generated while a prompt of
PROMPT_TOKENS arrives every PROMPT_EVERY_S. Rounds with the header `x-penstock-tpot-s` alternate with rounds
without it. Prints the share of answers within the objective, their TPOT, the longest token gap, and the TTFT
of the prompts.
"""

import asyncio
import random
import time
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import httpx
from benchmarks.engine.real_engine import engine
from benchmarks.http_load import stream_events
from benchmarks.options import option_parser
from rich.console import Console
from rich.table import Table

from penstock_engine.contract.wire import TPOT_HEADER

STREAMS, OUTPUT_TOKENS = 4, 120
PROMPT_TOKENS, PROMPT_EVERY_S = 1500, 0.7


@dataclass(slots=True)
class RoundResults:
    """Results of rounds. tpot_s: of each answer. gaps_s: longest gap of each. ttft_s: of each prompt."""

    tpot_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    ttft_s: list[float] = field(default_factory=list)


async def times(http: httpx.AsyncClient, headers: dict[str, str], **body: Any) -> list[float]:
    """Stream a request. Returns its send time and the time of each event."""
    sent_s, whole = time.monotonic(), {"ignore_eos": True, **body}
    return [sent_s, *[at_s async for at_s, _ in stream_events(http, whole, headers)]]


async def one_round(
    http: httpx.AsyncClient, headers: dict[str, str], draw: random.Random, seen: RoundResults
) -> None:
    def prompt(tokens: int) -> list[int]:
        return [draw.randrange(3, 200) for _ in range(tokens)]

    async def answer() -> None:
        _, *came = await times(http, headers, prompt=prompt(20), max_tokens=OUTPUT_TOKENS)
        gaps = [later - sooner for sooner, later in pairwise(came)]
        seen.tpot_s.append((came[-1] - came[0]) / (OUTPUT_TOKENS - 1))
        seen.gaps_s.append(max(gaps))

    async def ask() -> None:
        sent, first, *_ = await times(http, headers, prompt=prompt(PROMPT_TOKENS), max_tokens=1)
        seen.ttft_s.append(first - sent)

    async with asyncio.TaskGroup() as group:
        answers = [group.create_task(answer()) for _ in range(STREAMS)]
        while not all(task.done() for task in answers):
            await asyncio.sleep(PROMPT_EVERY_S)
            group.create_task(ask())


async def measured(rounds: int, tpot_s: float, seed: int) -> dict[str, RoundResults]:
    kinds = {"told": {TPOT_HEADER: str(tpot_s)}, "not told": {}}
    seen = {name: RoundResults() for name in kinds}
    draw = random.Random(seed)
    flags = (
        "--max-model-len", "2048", "--max-num-batched-tokens", "2048",
        "--no-enable-prefix-caching", "--no-enable-log-requests",
    )  # fmt: skip
    with engine(*flags) as (url, _):
        async with httpx.AsyncClient(base_url=url, timeout=300) as http:
            await one_round(http, {}, draw, RoundResults())
            for _ in range(rounds):
                for name, headers in kinds.items():
                    await one_round(http, headers, draw, seen[name])
    return seen


def main() -> None:
    parser = option_parser(__doc__, tpot_s=0.1, seed=1)
    parser.add_argument("--rounds", type=int, default=10, help="of each kind")
    options = parser.parse_args()
    table = Table(
        "requests", "answers", f"within {options.tpot_s:g} s", "TPOT, median", "largest",
        "longest gap, median", "largest", "prompt's TTFT, median", "largest",
    )  # fmt: skip
    for name, seen in asyncio.run(measured(options.rounds, options.tpot_s, options.seed)).items():
        within = sum(each <= options.tpot_s for each in seen.tpot_s) / len(seen.tpot_s)
        figures = (seen.tpot_s, seen.gaps_s, seen.ttft_s)
        told = [f"{of(each):.3f}" for each in figures for of in (median, max)]
        table.add_row(name, str(len(seen.tpot_s)), f"{within:.0%}", *told)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
