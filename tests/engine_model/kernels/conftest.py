"""Kernels run on a CUDA device or under Triton's interpreter; elsewhere nothing is collected."""

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.support.engine.interpreted_tests import LOADED_FILES, loaded_sources

from penstock_engine.kernels.operations import BY_DEVICE, TORCH, TRITON

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if not IS_INTERPRETED and not torch.cuda.is_available():
    collect_ignore_glob = ["test_*.py"]


def pytest_sessionfinish() -> None:
    if path := os.environ.get(LOADED_FILES):
        Path(path).write_text("\n".join(loaded_sources()))


@pytest.fixture(scope="session")
def device() -> str:
    return "cpu" if IS_INTERPRETED else "cuda"


@pytest.fixture(scope="session", autouse=True)
def kernel_equality() -> ModuleType:
    """benchmarks/engine/kernel_equality.py, which also makes the interpreter a little faster."""
    module = importlib.import_module("benchmarks.engine.kernel_equality")
    if IS_INTERPRETED:
        module.skip_what_is_idle()
    return module


@pytest.fixture
def computing() -> Callable[[str], AbstractContextManager[None]]:
    """computing("triton") or ("torch"): what all devices compute with, inside the context."""
    tables = {"torch": TORCH, "triton": TRITON}
    if not torch.cuda.is_available():  # every launch of a graph is made anew
        tables["triton"] = replace(TRITON, recorder=lambda: lambda compute: compute)

    @contextmanager
    def context(name: str) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for device in BY_DEVICE:
                patch.setitem(BY_DEVICE, device, tables[name])
            yield

    return context
