"""Checks every kernel against its reference in torch.

Cases are grouped into items; an item names the cases whose results differ. The first item compiles all
variants ahead; the second checks that no kernel is without a case.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from benchmarks.engine.kernel_equality import skip_what_is_idle
from benchmarks.gpu.cases.attention import (
    KV_WRITE,
    attention_cases,
    far_cases,
    nan_cases,
    rounding_cases,
)
from benchmarks.gpu.cases.case import Case, watched
from benchmarks.gpu.cases.far import far_row_cases
from benchmarks.gpu.cases.products import product_kinds
from benchmarks.gpu.cases.rows import row_kinds
from benchmarks.gpu.child import is_usable
from benchmarks.gpu.compile_ahead import (
    compile_for,
    counted_compilations,
)
from benchmarks.gpu.context import Context, Item, Record
from tests.support.engine.named_device import (
    NamedDevice,
    all_kernels,
    asked_of,
    launches_replaced,
)

from penstock_engine.kernels.attention_tile import ASSUMED_SHARED_KIB
from penstock_engine.kernels.runtime import ASSUMED_MULTIPROCESSORS

GROUP_CASES = 30  # of an item
SMALL_CASES = 4  # of each kind under the interpreter
COMPILE_SHARE = 0.5  # of the time of the step, at most, to compile ahead
# A case takes a second to compile and milliseconds to run: then it hangs, and the process is ended.
HANGS_AFTER_S = 30.0
NAMED_FAILURES = 10  # of an item; the others are counted
LARGE_BYTES = 32 * 2**30  # that the allocator keeps; given back, so that large cases find memory
# An H100; which kernels are launched hardly depends on it
ANY_DEVICE = NamedDevice(90, ASSUMED_MULTIPROCESSORS, ASSUMED_SHARED_KIB)


def items(context: Context) -> Iterator[Item]:
    """The items: compile ahead, the list of kernels, then groups of cases, a kind at a time."""
    if context.is_small:
        skip_what_is_idle()
    kinds = all_cases(context.seed, is_small=context.is_small)
    every = [case for cases in kinds.values() for case in cases]
    yield Item("compile ahead", partial(_compile_ahead, context, every))
    yield Item("every kernel has a case", partial(check_coverage, every))
    for kind, cases in kinds.items():
        for start in range(0, len(cases), GROUP_CASES):
            group = cases[start : start + GROUP_CASES]
            yield Item(f"{kind} {start}", partial(run_cases, group, context.device))


def all_cases(seed: int, *, is_small: bool) -> dict[str, list[Case]]:
    """The cases of each kind. is_small: few and small ones, for the interpreter."""
    kinds = [*row_kinds(is_small=is_small), KV_WRITE, *product_kinds(is_small=is_small)]
    covered = [kind.cases(seed) for kind in kinds]
    if is_small:
        covered = [cases[:SMALL_CASES] for cases in covered]
    lists = [
        attention_cases(seed, is_small=is_small),
        *covered,
        rounding_cases(),
        nan_cases()[: 3 if is_small else None],
        far_cases(is_small=is_small),
        far_row_cases(is_small=is_small),
    ]
    return {cases[0].kind: cases for cases in lists}


def _compile_ahead(context: Context, cases: Sequence[Case]) -> Record:
    return compile_for(context, [case.launch_empty for case in cases], share=COMPILE_SHARE)


def run_cases(cases: Sequence[Case], device: str) -> Record:
    """Run cases and compare. Each waits for the device, so that an error is that of its own launch.

    Raises RuntimeError with the case's name if the device is lost to this process.
    """
    failures: list[str] = []
    with counted_compilations() as compiled:
        for index, case in enumerate(cases):
            try:
                with watched(HANGS_AFTER_S, partial(end_process, case)):
                    wrong = case.differences(device)
                    if device == "cuda":
                        torch.cuda.synchronize()
            except Exception as error:
                wrong = [f"{type(error).__name__}: {str(error)[:300]}"]
                if not is_usable(device):
                    raise RuntimeError(
                        f"{case.kind} {case.name}: {wrong[0]}; {len(failures)} cases failed before,"
                        f" {len(cases) - index - 1} did not run"
                    ) from error
            if wrong:
                failures.append(f"{case.name}: {', '.join(wrong)}")
            if device == "cuda" and torch.cuda.memory_reserved() > LARGE_BYTES:
                torch.cuda.empty_cache()
    record: Record = {"ok": not failures, "cases": len(cases), "compiled": len(compiled)}
    if failures:
        more = len(failures) - NAMED_FAILURES
        lines = failures[:NAMED_FAILURES] + ([f"and {more} more"] if more > 0 else [])
        record |= {"failed": len(failures), "difference": "\n".join(lines)}
    return record


def end_process(case: Case) -> None:
    """End this process, whose kernel hangs; the step goes on with the next item in another one."""
    print(f"{case.kind} {case.name} hangs", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def check_coverage(cases: Sequence[Case]) -> Record:
    """Whether the cases launch every kernel: each case once, with empty tensors, launching nothing."""
    launched: set[str] = set()
    with asked_of(ANY_DEVICE), launches_replaced(
        lambda kernel, grid: lambda *args, **options: launched.add(kernel.__name__)
    ):  # fmt: skip
        for case in cases:
            if case.kind not in ("far", "far in the cache"):  # the same kernels, in much memory
                case.launch_empty()
    missing = sorted(all_kernels() - launched)
    record: Record = {"ok": not missing, "kernels": len(launched)}
    return record | ({"difference": f"no case launches {', '.join(missing)}"} if missing else {})
