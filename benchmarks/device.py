"""Checks and measures the engine on a GPU, in one command that ends by itself.

    python benchmarks/device.py --minutes 6 --out DIR [--only a c] [--seed 0]
    python benchmarks/device.py --compare OLD --out NEW

It needs a checkout, torch, Triton and transformers: no network, no installed package of this project and
no model files. Weights are random, made on the device. Steps that check come before those that measure:

    a  kernels     every kernel against its torch reference
    b  tokens      greedy tokens against transformers', in the engine's modes
    c  attention   share of the memory bandwidth, by tile, batch and context, beside torch's attention
    d  decode      the decode step against the time to read weights and KV cache, and where the rest goes
    e  prefill     FLOP/s of prompts
    f  server      tokens/s and latencies of the server under 64 streams
    g  start       start-up phases, graph capture, memory counted against memory used

Each step runs in a process of its own, for a share of the time. A crash costs one item, a hang the rest of
its step; either way the record says where it was. Results are appended to DIR/results.jsonl, a line for
each item, so that a run that is cut keeps what it had; DIR/a.log has the output of step a. The end prints
a summary with the bars. --compare prints two runs side by side, and runs nothing. Without a GPU, the
kernels run under Triton's interpreter at small shapes, which tests this program and no speed.

Exits with 1 if a check failed, with 2 if the arguments, the machine or the time do not allow the run, and
with 130 if it was interrupted.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def find_packages() -> None:
    """Make the checkout's packages importable, before installed ones of the same name.

    `benchmarks` and `tests` have no __init__.py, so that a package of that name among the installed ones
    would come first.
    """
    # In place of this folder, whose modules are no top-level ones
    sys.path[0] = str(ROOT / "engine")
    for name in ("benchmarks", "tests"):
        package = ModuleType(name)
        package.__path__ = [str(ROOT / name)]
        sys.modules[name] = package


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=6.0, help="time of the whole run")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--only", nargs="+", default=[], help="letters of steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compare", type=Path, help="folder of another run")
    # Arguments of the processes that the run starts for its steps:
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--kill-seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    find_packages()
    if args.step is not None:
        from benchmarks.gpu.child import run_items

        status = run_items(
            args.step, args.out, args.seed, args.skip, args.seconds, args.kill_seconds
        )
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # what has crashed or hangs on the device may not let the interpreter end
    if args.compare is not None:
        from benchmarks.gpu.compare import print_comparison

        return print_comparison(args.compare, args.out)
    from benchmarks.gpu.run import run

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: with a summary
    return run(
        args.out, minutes=args.minutes, only=" ".join(args.only), seed=args.seed, now=time.monotonic
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
