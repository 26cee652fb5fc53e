"""Runs one service on vLLM for CPU and on Penstock's engine: Ready, streamed, scaled 1 -> 2 -> 1, canary.

    python -m benchmarks.cluster.vllm_runtime [--runtime VLLM Penstock] [--python 3.12] [--within 1200]

The two specs differ in `runtime` alone. vLLM is installed in the cache on first use; its program is found by
the pods of the local cluster because its folder is on PATH. Exits with 1 if a request failed or a canary was
not promoted.
"""

import asyncio
import sys
from pathlib import Path

from benchmarks.cluster.campaigns import runtime_run
from benchmarks.cluster.campaigns.runtime_run import RuntimeRecord
from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.cluster.campaigns.vllm_install import find_vllm
from benchmarks.options import option_parser

from penstock.demo.load import End, corpus
from penstock.demo.model import ensure_model

ROOT = Path(__file__).parents[2]
RUNTIMES = {"VLLM": {"type": "VLLM"}, "Penstock": {}}


async def campaign(names: list[str], python: str, within_s: float) -> bool:
    """Run the service on each runtime, in a cluster of its own. Returns whether all went well."""
    models = ensure_model(ROOT / "docs")
    if "VLLM" in names:
        find_vllm(python)
    passed = True
    for name in names:
        async with temporary_stage(name.lower(), models) as stage:
            record = await runtime_run.run(stage, corpus(ROOT), RUNTIMES[name], within_s=within_s)
        print_tables(record)
        passed &= set(record.ends) == {End.DONE} and "Stable" in record.steps[-2][2]
    return passed


def print_tables(record: RuntimeRecord) -> None:
    """Print the record as Markdown."""
    print(f"\n## {record.runtime}")
    record.print_table()
    print("\n| after | desired | reason |\n| --- | --- | --- |")
    for at_s, desired, reason in record.decisions:
        print(f"| {at_s:.0f} s | {desired} | {reason} |")
    print("\n| metric | effect | canary | control | e-value | verdict |")
    print("| --- | --- | --- | --- | --- | --- |")
    for each in record.evidence:
        samples = f"{each['canarySamples']} | {each['controlSamples']}"
        effect, e_value = f"{each['effect']:+.1%}", f"{each['eValue']:.2g}"
        print(f"| {each['metric']} | {effect} | {samples} | {e_value} | {each['verdict']} |")
    print("\nrequests: " + ", ".join(f"{count} {end}" for end, count in record.ends.items()))


if __name__ == "__main__":
    parser = option_parser(__doc__)
    parser.add_argument("--runtime", nargs="+", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--python", default="3.12", help="version or path of vLLM's interpreter")
    parser.add_argument("--within", type=float, default=1200.0, help="seconds for each step")
    options = parser.parse_args()
    sys.exit(0 if asyncio.run(campaign(options.runtime, options.python, options.within)) else 1)
