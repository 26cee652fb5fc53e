"""Measures the latency that mirroring adds to the original request.

    python -m benchmarks.gateway.copy_latency [--rate 50] [--rounds 40] [--pause-ms 20]

One stream at a time is sent, at --rate a second, far below the gateway's limit. Its copy goes to a second
engine that answers, refuses connections, or never answers. Of every four requests one takes each path, in
random order. The interval of the difference is a bootstrap over rounds of a hundred requests. Besides the
client's latency it prints the CPU time of the gateway's event loop from arrival to the end of the answer,
which a busy machine does not lengthen. On a virtual machine, requests during which the hypervisor took CPU
time are excluded ("steal" of proc_stat(5), in steps of 10 ms); their number is printed.

--pause-ms makes engines answer after a pause with hardly any CPU time, as engines on their own hosts do: a
constant pause for originals, and 0.5 to 1.5 times of it for copies, so that both answers coincide at times.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
from itertools import pairwise

import aiohttp
import psutil
from benchmarks.gateway.overhead import SPENT, ask, processes
from benchmarks.options import option_parser

# Outcomes of copies, with the model of each.
COPIES = {
    "no copy": "plain",
    "answered": "copied",
    "refused": "refused",
    "unanswered": "unanswered",
}
ROUND_REQUESTS = 25  # of each
ByWay = dict[str, list[float]]
RESAMPLES = 1000


def stolen_s() -> float:
    """CPU seconds taken by the hypervisor since boot; 0 if the kernel does not report them."""
    return getattr(psutil.cpu_times(), "steal", 0.0)


async def one_round(port: int, rate: float) -> tuple[ByWay, ByWay]:
    """Latency and gateway CPU time of each stream, by outcome of its copy.

    A stream starts every 1 / rate seconds, once the one before has ended. Streams disturbed by the
    hypervisor are excluded.
    """
    ways = [way for _ in range(ROUND_REQUESTS) for way in random.sample(list(COPIES), len(COPIES))]
    took: ByWay = {way: [] for way in COPIES}
    spent: ByWay = {way: [] for way in COPIES}
    await spent_s(port)
    latencies, stolen = [], [stolen_s()]
    async with aiohttp.ClientSession() as session:
        for way in ways:
            latencies.append(await ask(session, port, COPIES[way], True))
            stolen.append(stolen_s())
            await asyncio.sleep(1 / rate - latencies[-1])
    is_disturbed = [after > before for before, after in pairwise(stolen)]
    told = zip(ways, latencies, await spent_s(port), is_disturbed, strict=True)
    for way, latency_s, computed_s, disturbed in told:
        if not disturbed:
            took[way].append(latency_s)
            spent[way].append(computed_s)
    return took, spent


async def copies(options: argparse.Namespace) -> None:
    async with processes(options.chunks, options.pause_ms / 1e3) as (_, gateways):
        gateway_port, _ = gateways["own"]
        rounds = [await one_round(gateway_port, options.rate) for _ in range(options.rounds)]
    print(f"streams of {options.chunks} events, {options.rate:g} a second, {options.rounds} rounds")
    print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    print(
        f"of {options.rounds * ROUND_REQUESTS:,} requests each way, those that the host left alone:"
    )
    for index, title in enumerate(("latency", "computed by the gateway")):
        print(title)
        measured = [each[index] for each in rounds]
        plain = [each["no copy"] for each in measured]
        for way in COPIES:
            copied = [each[way] for each in measured]
            values = [value for each in copied for value in each]
            cuts = statistics.quantiles(values, n=100)
            low_s, high_s = difference(plain, copied)
            more_s = cuts[98] - p99([value for each in plain for value in each])
            print(
                f"{way:10} {len(values):6,}   p50 {cuts[49] * 1e3:7.2f} ms   "
                f"p99 {cuts[98] * 1e3:7.2f} ms   "
                f"{more_s * 1e3:+.2f} ms ({low_s * 1e3:+.2f} to {high_s * 1e3:+.2f})"
            )


async def spent_s(port: int) -> list[float]:
    """CPU seconds of each request since the previous call."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{SPENT}") as got,
    ):
        spent: list[float] = json.loads(await got.read())
        return spent


def p99(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=100)[98]


def difference(without: list[list[float]], copied: list[list[float]]) -> tuple[float, float]:
    """Bootstrap 95 % interval of the difference of the 99th percentiles, over rounds."""
    pairs = list(zip(without, copied, strict=True))
    found = []
    for _ in range(RESAMPLES):
        drawn = random.choices(pairs, k=len(pairs))
        before, after = ([x for pair in drawn for x in pair[side]] for side in (0, 1))
        found.append(p99(after) - p99(before))
    cuts = statistics.quantiles(found, n=40)
    return cuts[0], cuts[-1]


def main() -> None:
    parser = option_parser(__doc__, chunks=50, rate=50.0, pause_ms=0.0, rounds=40)
    asyncio.run(copies(parser.parse_args()))


if __name__ == "__main__":
    main()
