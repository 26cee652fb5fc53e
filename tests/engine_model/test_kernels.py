"""Runs the tests of kernels under the interpreter, and compiles the kernels for CUDA."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.clients.caches import cache_root

KERNEL_TESTS = Path(__file__).parent / "kernels"


@pytest.mark.timeout(900)
def test_kernels_equal_their_references_under_the_interpreter() -> None:
    """In a process of its own: Triton decides at its import whether it interprets."""
    result = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(KERNEL_TESTS),
            f"--ignore={KERNEL_TESTS / 'test_kernel_sampling.py'}",  # run by tests/engine_sampling
        ],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-5000:]
    assert " passed" in result.stdout


def test_kernels_compile_for_cuda() -> None:
    """Compile to machine code, on any machine: 25 s of CPU time, unless cached for the same source."""
    env = {**os.environ, "TRITON_CACHE_DIR": str(cache_root() / "triton")}
    env.pop("TRITON_INTERPRET", None)
    result = subprocess.run(
        [sys.executable, str(KERNEL_TESTS / "compile_for_cuda.py")],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.endswith("compiled\n"), result.stderr[-5000:]


def test_a_cpu_engine_does_not_import_triton() -> None:
    """Importing Triton would cost time and memory at every start, and it is not always installed."""
    code = "import sys, penstock_engine.execution.runner; print('triton' in sys.modules)"
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    env.pop("TRITON_INTERPRET", None)
    result = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
