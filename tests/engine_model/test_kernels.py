"""Runs the tests of kernels under the interpreter, and compiles the kernels for CUDA."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.engine.interpreted_tests import passes_interpreted

from penstock.clients.machine.caches import cache_root

KERNEL_TESTS = Path(__file__).parent / "kernels"


@pytest.mark.timeout(900)
def test_kernels_equal_their_references_under_the_interpreter() -> None:
    sampling = KERNEL_TESTS / "test_kernel_sampling.py"  # run by tests/engine_sampling
    passes_interpreted(str(KERNEL_TESTS), f"--ignore={sampling}")


def test_kernels_compile_for_cuda() -> None:
    """Compile to machine code, on any machine: 25 s of CPU time, unless cached for the same source."""
    env = {
        **os.environ,
        "TRITON_CACHE_DIR": str(cache_root() / "triton"),
        "PYTHONPATH": str(KERNEL_TESTS.parents[2]),
    }
    env.pop("TRITON_INTERPRET", None)
    result = subprocess.run(
        [sys.executable, str(KERNEL_TESTS / "compile_for_cuda.py")],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.endswith("compiled\n"), result.stderr[-5000:]


def test_no_step_compiles_after_the_warm_up() -> None:
    """Drawn steps need no variant of a kernel that the warm-up has not needed."""
    env = {**os.environ, "PYTHONPATH": str(KERNEL_TESTS.parents[2])}
    env.pop("TRITON_INTERPRET", None)
    result = subprocess.run(
        [sys.executable, str(KERNEL_TESTS / "compile_in_steps.py")],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.endswith("no step compiles\n"), result.stderr[-5000:]


def test_a_cpu_engine_does_not_import_triton() -> None:
    """Importing Triton would cost time and memory at every start, and it is not always installed."""
    code = "import sys, penstock_engine.execution.runner; print('triton' in sys.modules)"
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    env.pop("TRITON_INTERPRET", None)
    result = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


def test_interpreted_tests_run_again_when_a_source_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))
    arguments = [str(KERNEL_TESTS / "test_silu_mul.py")]
    passes_interpreted(*arguments)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    passes_interpreted(*arguments)
    (record,) = (tmp_path / "interpreted_tests").iterdir()
    passed = json.loads(record.read_text())
    passed["sources"]["engine/penstock_engine/kernels/silu_mul.py"] = "another"
    record.write_text(json.dumps(passed))
    with pytest.raises(AssertionError):
        passes_interpreted(*arguments)
