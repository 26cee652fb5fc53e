"""Tests of the checks of kernels on a GPU: how results are judged, and that compiling ahead is of use."""

from functools import partial
from pathlib import Path

import pytest
import torch
from benchmarks.gpu import kernel_checks
from benchmarks.gpu.cases.case import (
    Case,
    PoisonedMemory,
    Prepared,
    compare,
    compare_bits,
    poison,
)
from benchmarks.gpu.cases.inputs import ODD, Inputs
from tests.support.tools.checkout_program import run_python, run_to_end


def test_a_difference_is_described_by_place_and_size() -> None:
    a = torch.tensor([1.0, 2.0, 3.0])
    assert compare("x", a, a + 1e-6, 1e-5) == []
    assert compare("x", a, torch.tensor([1.0, 2.5, 3.1]), 1e-2) == [
        "x: 2 of 3 differ, by up to 0.5; the first at 1: 2, not 2.5"
    ]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_a_number_differs(value: float) -> None:
    a, b = torch.tensor([1.0, value]), torch.tensor([1.0, 5.0])
    assert compare("x", a, b, 1e9) != []
    assert compare("x", b, a, 1e9) != []


def test_equal_infinities_are_equal_but_no_shapes_or_types() -> None:
    excluded = torch.tensor([-torch.inf, 1.0])
    assert compare("x", excluded, excluded.clone(), 0.0) == []
    assert compare("x", excluded, excluded[:1], 0.0) != []
    assert compare("x", excluded, excluded.half(), 0.0) != []
    assert compare_bits("x", torch.tensor([0.0]), torch.tensor([-0.0])) != []


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int32, torch.bool]
)
def test_new_memory_is_poisoned(dtype: torch.dtype) -> None:
    expected = poison(torch.zeros(3, dtype=dtype)).view(torch.uint8)
    assert expected.any()
    x = torch.zeros(3, dtype=dtype)
    with PoisonedMemory():
        made = [
            torch.empty(3, dtype=dtype), torch.empty_like(x), x.new_empty(3),
            torch.empty_strided((3,), (1,), dtype=dtype),
        ]  # fmt: skip
        assert not torch.zeros(3, dtype=dtype).view(torch.uint8).any()
    for tensor in made:
        assert torch.equal(tensor.view(torch.uint8), expected)


def case(name: str, launch: object = None, fault: float = 0.0, *, spills: bool = False) -> Case:
    """A case whose result differs by `fault` from its reference."""

    def prepare(inputs: Inputs) -> Prepared:
        x = inputs.normal(4, 6, padding=ODD)

        def double() -> torch.Tensor:
            if callable(launch):
                launch()
            if spills:
                x._base[0, 0] = 0.0  # type: ignore[index]
            return 2 * x + fault

        return Prepared(double, lambda output: compare("the double", output, 2 * x, 1e-6))

    return Case("double", name, prepare)


def test_failed_cases_are_named_and_the_others_run() -> None:
    def crash() -> None:
        raise ValueError("a launch that fails")

    cases = [
        case("right"), case("wrong", fault=1.0), case("crash", crash), case("spill", spills=True)
    ]  # fmt: skip
    record = kernel_checks.run_cases(cases, "cpu")
    assert (record["ok"], record["cases"], record["failed"]) == (False, 4, 3)
    assert [line.split(":")[0] for line in record["difference"].splitlines()] == [
        "wrong", "crash", "spill"
    ]  # fmt: skip
    assert "a launch that fails" in record["difference"]


def test_a_group_without_differences_is_ok() -> None:
    record = kernel_checks.run_cases([case("one"), case("two")], "cpu")
    assert record == {"ok": True, "cases": 2, "compiled": 0}


def test_a_lost_device_ends_the_item_and_names_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("an illegal memory access")

    monkeypatch.setattr(kernel_checks, "is_usable", lambda device: False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    monkeypatch.setattr(Case, "inputs", lambda self, device: Inputs("cpu", 0))
    cases = [case("before"), case("culprit", fail), case("after")]
    with pytest.raises(RuntimeError, match=r"double culprit: .*illegal.*1 did not run"):
        kernel_checks.run_cases(cases, "cuda")


def test_a_hanging_case_ends_its_process() -> None:
    code = """
import time
from benchmarks.gpu.cases.case import watched
from benchmarks.gpu.kernel_checks import end_process
class Hanging: kind, name = "double", "hanging"
with watched(0.05, lambda: end_process(Hanging)):
    time.sleep(60)
"""
    result = run_to_end(code)
    assert result.returncode == -9
    assert result.stderr.endswith("double hanging hangs\n")


FAULT = """
from benchmarks.gpu.cases import attention as attention_cases
from benchmarks.gpu.bars import summary
from benchmarks.gpu.child import records_of
from benchmarks.gpu.context import Context
from benchmarks.gpu.kernel_checks import items
from dataclasses import replace
right = attention_cases.paged_attention

def without_the_last_key(query, cache, batch, scale, **options):
    return right(query, cache, replace(batch, lengths=batch.lengths - 1), scale, **options)

if "fault" in FAULTS:
    attention_cases.paged_attention = without_the_last_key
chosen = [item for item in items(Context("cpu", 0, 1e18)) if item.name in CHOSEN]
assert len(chosen) == len(CHOSEN)
print(summary(list(records_of("a", chosen, Context("cpu", 0, 1e18), 0)), sys.stdout))
"""


@pytest.mark.parametrize("fault", ["fault", "none"])
def test_a_fault_in_a_kernel_fails_the_run(fault: str) -> None:
    """Attention that leaves out the last key of each sequence, which the checks have to find."""
    chosen = '["every kernel has a case", "gate 0", "far in the cache 0"]'
    code = f"FAULTS, CHOSEN = [{fault!r}], {chosen}\n{FAULT}"
    printed = run_python(code, TRITON_INTERPRET="1").splitlines()
    assert printed[0] == f"a: 3 items, {int(fault == 'fault')} failed"
    assert printed[-1] == str(int(fault == "fault"))
    assert any(line.startswith("FAILED a far in the cache 0: ") for line in printed) == (
        fault == "fault"
    )


def test_a_kernel_without_a_case_fails() -> None:
    code = """
from benchmarks.gpu.kernel_checks import all_cases, check_coverage
cases = [c for kind, cases in all_cases(0, is_small=True).items() for c in cases if kind != "rope"]
print(check_coverage(cases))
"""
    printed = run_python(code, TRITON_INTERPRET="1")
    assert printed.strip().endswith("'difference': 'no case launches _rope_kernel'}")


def test_the_names_of_items_do_not_change() -> None:
    """After a crash a step goes on behind the item that caused it."""
    code = """
from benchmarks.gpu.context import Context
from benchmarks.gpu.kernel_checks import items
for item in items(Context("cpu", 7, 1e18)): print(item.name)
"""
    names = run_python(code, TRITON_INTERPRET="1")
    assert len(set(names.splitlines())) == len(names.splitlines())
    assert run_python(code, TRITON_INTERPRET="1", PYTHONHASHSEED="1") == names


COMPILE = """
torch.cuda.is_available = lambda: True  # so that the kernels are handed to Triton
from benchmarks.gpu.compile_ahead import *
from benchmarks.gpu.kernel_checks import ANY_DEVICE as device, all_cases
cases = {f"{c.kind} {c.name}": c for cases in all_cases(0, is_small=True).values() for c in cases}
chosen = [cases[name] for name in cases if name.startswith(("gate", "NaN"))][:6]
launches = [case.launch_empty for case in chosen]
figures = compile_ahead([*launches, lambda: 1 / 0], device, limit_s=300, num_processes=2)
print(figures["launches"], figures["compiled"] > 2, figures["failed"], figures["died"])
print(figures["reasons"])

def compiled_now(launches):
    with compiling_only(device), counted_compilations() as compiled:
        for launch in launches:
            launch()
    return len(compiled)

print(compiled_now(launches))
from penstock_engine.kernels.silu_mul import silu_mul
memory = torch.empty(2 * 200 + 1, dtype=torch.float64)
print(compiled_now([lambda: silu_mul(memory[1:].view(2, 200))]))
"""


def test_compiled_ahead_is_found_in_the_cache(tmp_path: Path) -> None:
    """Another process compiles nothing again, but a variant that was not launched before."""
    env = {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    counts, reasons, *again = run_python(COMPILE, **env).splitlines()
    assert counts == "7 True 1 0"
    assert reasons == "['ZeroDivisionError: division by zero']"
    assert again == ["0", "1"]


def test_empty_inputs_have_the_alignment_of_real_ones() -> None:
    for padding in ("dense", "aligned", "odd"):
        pair = [
            Inputs("cpu", 0, is_empty=is_empty).normal(3, 4, 16, dtype=torch.bfloat16, padding=padding)
            for is_empty in (False, True)
        ]  # fmt: skip
        assert pair[0].stride() == pair[1].stride()
        assert (pair[0].data_ptr() - pair[1].data_ptr()) % 16 == 0


def test_random_inputs_depend_on_the_name_alone() -> None:
    make = partial(Inputs.normal, dtype=torch.float32)
    one, again, other = (
        make(case(name).inputs("cpu"), 5).tolist() for name in ("one", "one", "other")
    )
    assert one == again != other
