"""Measures whether an engine should read weights while they arrive, or fetch files and load them then.

    python -m benchmarks.start_fast [--mib 1024] [--pairs 5] [--folder .] [--runai-python PYTHON]

A Llama with random bf16 weights in 4 shards is on versitygw, as fast as that is and limited to 400 and 100
MiB/s. In each pair, in another order each time: the product's fetch and then the engine's loader, with the
page cache that the fetch left and without it; a prototype that reads ranges straight into the engine's
parameters, also with SHA-256 of the files; runai-model-streamer, if PYTHON has it with its S3 part; and
safetensors' load_file of the fetched files. A way has ended when each tensor was read once. Imports are not
counted. Exits with 1 if two ways loaded other numbers.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.options import option_parser
from benchmarks.start_fast.starts import MIB, RATES, Pair, measure_starts
from benchmarks.start_fast.steps import Step

# The steps of which each way consists.
WAYS = {
    "fetch, then load": ("fetch", "load"),
    "fetch, then load without page cache": ("fetch", "load, dropped"),
    "stream": ("stream",),
    "stream with SHA-256": ("stream, SHA-256",),
    "runai-model-streamer": ("runai",),
    "of these: fetch": ("fetch",),
    "load": ("load",),
    "load without page cache": ("load, dropped",),
    "load_file": ("load_file",),
    "load_file without page cache": ("load_file, dropped",),
}


def main() -> int:
    parser = option_parser(__doc__, mib=1024, pairs=5, folder=Path(), runai_python="")
    args = parser.parse_args()
    pairs: list[Pair] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        try:
            for pair in measure_starts(Path(folder), args.mib * MIB, args.pairs, args.runai_python):
                pairs.append(pair)
                times = ", ".join(f"{name} {s.seconds:.2f}" for name, s in pair.by_way.items())
                rate = f"{pair.rate} MiB/s" if pair.rate else "no limit"
                print(f"{rate}, load {pair.load_average:.1f}: {times}", file=sys.stderr)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
    loads = [pair.load_average for pair in pairs]
    print(f"Load average {min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} processors\n")
    print_table(pairs)
    return 0


def print_table(pairs: list[Pair]) -> None:
    """Print the seconds of each way at each rate, its processor time, and its memory."""
    head = [f"{rate} MiB/s" if rate else "no limit" for rate in RATES]
    print(f"| way | {', s | '.join(head)}, s | CPU, s | peak RSS, MiB | anonymous, MiB |")
    print("| --- |" + " --- |" * (len(head) + 3))
    for way, names in WAYS.items():
        if not all(name in pairs[0].by_way for name in names):
            continue
        cells = [
            summary([seconds(pair, names) for pair in pairs if pair.rate == rate]) for rate in RATES
        ]
        cells += [
            f"{statistics.median(cpu_seconds(pair, names) for pair in pairs):.1f}",
            summary_mib(pairs, names, lambda step: step.peak_bytes),
            summary_mib(pairs, names, lambda step: step.anonymous_bytes),
        ]
        print(f"| {way} | {' | '.join(cells)} |")


def seconds(pair: Pair, names: tuple[str, ...]) -> float:
    return sum(pair.by_way[name].seconds for name in names)


def cpu_seconds(pair: Pair, names: tuple[str, ...]) -> float:
    return sum(pair.by_way[name].cpu_s for name in names)


def summary(values: list[float]) -> str:
    """The median, and the range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def summary_mib(pairs: list[Pair], names: tuple[str, ...], value: Callable[[Step], int]) -> str:
    """The median of the largest process of a way."""
    largest = [max(value(pair.by_way[name]) for name in names) for pair in pairs]
    return f"{statistics.median(largest) / MIB:.0f}"


if __name__ == "__main__":
    sys.exit(main())
