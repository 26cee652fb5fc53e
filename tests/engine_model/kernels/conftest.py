"""Kernels run on a CUDA device or under Triton's interpreter; elsewhere nothing is collected."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SCRIPT = Path(__file__).parents[3] / "benchmarks" / "kernel_equality.py"

if not IS_INTERPRETED and not torch.cuda.is_available():
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def device() -> str:
    return "cpu" if IS_INTERPRETED else "cuda"


@pytest.fixture(scope="session", autouse=True)
def kernel_equality() -> ModuleType:
    """benchmarks/kernel_equality.py, which also makes the interpreter a little faster."""
    spec = importlib.util.spec_from_file_location("kernel_equality", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel_equality"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    if IS_INTERPRETED:
        module.skip_repeated_patching()
    return module
