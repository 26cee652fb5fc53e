"""Measures the worst token gap of running streams while a 20,000-token prompt is prefilled.

    python -m benchmarks.engine.token_gaps [--prompt-tokens 20000] [--streams 4] [--rounds 3]

It serves a small random model. The prompt is ordered after the streams (fcfs), before them by priority
(priority), or before them because it waited for its adapter (adapter). Exits with 1 if the worst gap of the
last two is more than three times that of fcfs in the same run.
"""

import asyncio
import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from benchmarks.engine.real_engine import engine
from benchmarks.http_load import stream_events
from benchmarks.options import option_parser

from penstock_engine.make_model.adapters import make_adapter

MAX_RATIO = 3.0
TIMEOUT_S = 300
KINDS = ("fcfs", "priority", "adapter")
# The prompt waits for its adapter before the streams arrive, so it is ordered before them.
HOLDER, WAITER = "holder", "waiter"
HOLD_TOKENS = 200
# Options with which each token has an event.
EACH_TOKEN = {"temperature": 0, "ignore_eos": True, "return_token_ids": True}


def prepare(model: Path, prompt_tokens: int) -> list[str]:
    """Raise the model's maximum length and make two adapters. Returns their flags."""
    config = json.loads((model / "config.json").read_text())
    config["max_position_embeddings"] = prompt_tokens + 4096
    (model / "config.json").write_text(json.dumps(config))
    flags = []
    for seed, name in enumerate((HOLDER, WAITER)):
        folder = make_adapter(
            model, model.parent / name, seed=seed, rank=4, projections=("q_proj",)
        )
        flags += ["--lora-modules", f"{name}={folder}"]
    return flags


async def first_token(client: httpx.AsyncClient, body: dict[str, Any]) -> float:
    async for at_s, _ in stream_events(client, EACH_TOKEN | body):
        return at_s
    raise RuntimeError("an answer without tokens")


async def follow(client: httpx.AsyncClient, body: dict[str, Any], times_s: list[float]) -> None:
    async for at_s, _ in stream_events(client, EACH_TOKEN | body):
        times_s.append(at_s)


async def worst_gap_s(
    client: httpx.AsyncClient, kind: str, num_tokens: int, num_streams: int
) -> float:
    """Longest gap between two tokens of any stream in one round, up to the prompt's first token."""
    long = {"prompt": [7] * num_tokens, "max_tokens": 1}
    if kind == "priority":
        long["priority"] = -1
    holding, waiting = [], []
    if kind == "adapter":
        body = {"prompt": [5], "max_tokens": HOLD_TOKENS, "model": HOLDER}
        holding.append(asyncio.create_task(follow(client, body, [])))
        await asyncio.sleep(0.05)
        waiting.append(asyncio.create_task(first_token(client, long | {"model": WAITER})))
        await asyncio.sleep(0.05)
    times_s: list[list[float]] = [[] for _ in range(num_streams)]
    streams = [
        asyncio.create_task(follow(client, {"prompt": [9 + n] * 8, "max_tokens": 3000}, times))
        for n, times in enumerate(times_s)
    ]
    while not all(len(times) > 5 for times in times_s):  # noqa: ASYNC110 - a list has no event
        await asyncio.sleep(0.01)
    begun_s = time.monotonic()
    end_s = await (waiting[0] if waiting else first_token(client, long))
    for task in streams:
        task.cancel()
    await asyncio.gather(*holding, *streams, return_exceptions=True)
    gaps = [
        later - earlier
        for times in times_s
        for earlier, later in pairwise(times)
        if later > begun_s and earlier < end_s
    ]
    if not all(times[-1] >= end_s - MAX_RATIO for times in times_s):
        raise RuntimeError("a stream ended before the prompt was computed")
    return max(*gaps, *(end_s - times[-1] for times in times_s))


async def campaign(
    url: str, num_tokens: int, num_streams: int, rounds: int
) -> dict[str, list[float]]:
    gaps: dict[str, list[float]] = {kind: [] for kind in KINDS}
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client:
        await first_token(client, {"prompt": [7] * num_tokens, "max_tokens": 1})  # warms up
        for _ in range(rounds):
            for kind in KINDS:
                gaps[kind].append(await worst_gap_s(client, kind, num_tokens, num_streams))
    return gaps


def main() -> None:
    args = option_parser(__doc__, prompt_tokens=20_000, streams=4, rounds=3).parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    flags = (
        "--dtype", "float32", "--scheduling-policy", "priority", "--no-enable-prefix-caching",
        "--num-gpu-blocks-override", str((args.prompt_tokens + 4096) // 16 * 2),
        "--enable-lora", "--max-loras", "1", "--max-cpu-loras", "2",
    )  # fmt: skip
    with engine(*flags, prepare=lambda model: prepare(model, args.prompt_tokens)) as (url, _):
        gaps = asyncio.run(campaign(url, args.prompt_tokens, args.streams, args.rounds))
    worst = {kind: max(values) for kind, values in gaps.items()}
    for kind, values in gaps.items():
        print(
            f"{kind}: worst gap {1000 * worst[kind]:.0f} ms, median of {len(values)} rounds "
            f"{1000 * median(values):.0f} ms, {worst[kind] / worst['fcfs']:.2f} x fcfs"
        )
    sys.exit(any(worst[kind] > MAX_RATIO * worst["fcfs"] for kind in KINDS))


if __name__ == "__main__":
    main()
