"""Measures fetches from a server of S3, and lists how broken sources are refused.

    python -m benchmarks.fetch [--mib 1024] [--pairs 5] [--folder .]

First part: in each pair, a fetch of a model from versitygw, one curl of the same bytes, and a plain write of
them to the same disk, each until the bytes are on the disk, in another order each time. Bar: the median fetch
has at least MIN_RATIO of the lower one of the other two rates. Second part: each broken source of the tests
with the reason and the sentence that it ends with. Bar: the reason is that of the tests. Exits with 1 if a
bar is missed.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.fetch.rates import Rates, measure_rates
from benchmarks.fetch.refusals import refusals
from benchmarks.options import option_parser

# Least rate of a fetch over the lower one of curl and disk: it also writes a journal, and flushes each part.
MIN_RATIO = 0.7
MIB = 1 << 20


def main() -> int:
    parser = option_parser(__doc__, mib=1024, pairs=5, folder=Path())
    args = parser.parse_args()
    print(f"Load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        pairs = measure_rates(Path(folder), args.mib * MIB, args.pairs)
    ratio = print_rates(pairs)
    with tempfile.TemporaryDirectory() as folder:
        num_wrong = print_refusals(Path(folder))
    return 1 if ratio < MIN_RATIO or num_wrong else 0


def print_rates(pairs: list[Rates]) -> float:
    """Print the rates of each pair. Returns the median ratio that the bar is about."""
    print("| pair | fetch, MiB/s | curl, MiB/s | disk, MiB/s | of the lower one |")
    print("| --- | --- | --- | --- | --- |")
    ratios = [pair.fetch / min(pair.curl, pair.disk) for pair in pairs]
    for number, (pair, ratio) in enumerate(zip(pairs, ratios, strict=True), 1):
        rates = [f"{rate / MIB:.0f}" for rate in (pair.fetch, pair.curl, pair.disk)]
        print(f"| {number} | {' | '.join(rates)} | {ratio:.2f} |")
    median = statistics.median(ratios)
    print(f"\nMedian {median:.2f}, bar {MIN_RATIO}\n")
    return median


def print_refusals(folder: Path) -> int:
    """Print how each broken source is refused. Returns how many have another reason than in the tests."""
    print("| source | reason | sentence | tried again |\n| --- | --- | --- | --- |")
    num_wrong = 0
    for name, expected, error in refusals(folder):
        is_right = error is not None and error.reason == expected
        num_wrong += not is_right
        reason, sentence = (error.reason, error.message) if error else ("none", "it was fetched")
        retried = "yes" if error and error.is_retryable else "no"
        sentence = sentence.replace(str(folder), "").replace("|", "\\|")
        print(f"| {name} | {reason}{'' if is_right else ' (wrong)'} | {sentence} | {retried} |")
    print(f"\n{num_wrong} with another reason than in the tests")
    return num_wrong


if __name__ == "__main__":
    sys.exit(main())
