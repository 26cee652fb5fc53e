"""Stands in for a GPU that is only named: Triton chooses and compiles variants for it, and nothing runs."""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import penstock_engine.kernels


@dataclass(frozen=True, slots=True)
class NamedDevice:
    """A device to compile for. It is also a driver for Triton: what Triton asks of one to compile.

    capability: 90 for sm_90. multiprocessors, shared_kib: tiles and numbers of splits follow from them.
    """

    capability: int
    multiprocessors: int
    shared_kib: int

    def get_current_device(self) -> int:
        """A number for each target, because Triton keeps the variants of a process by device."""
        return self.capability

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)


@contextmanager
def launching_for(
    device: NamedDevice, launch: Callable[[Any, Any], Callable[..., object]]
) -> Iterator[None]:
    """Within the block, `kernel[grid]` is what `launch` of them returns, for a named device.

    The process can launch nothing afterwards, as the driver stays replaced.
    """
    from triton.runtime import driver

    driver.set_active(device)
    with asked_of(device), launches_replaced(launch):
        yield


@contextmanager
def launches_replaced(launch: Callable[[Any, Any], Callable[..., object]]) -> Iterator[None]:
    """Within the block, `kernel[grid]` is what `launch` of them returns."""
    from triton.runtime.jit import KernelInterface

    original = KernelInterface.__getitem__
    # A method has to be a function: a partial object would not be given the kernel.
    KernelInterface.__getitem__ = lambda kernel, grid: launch(kernel, grid)
    try:
        yield
    finally:
        KernelInterface.__getitem__ = original


@contextmanager
def asked_of(device: NamedDevice) -> Iterator[None]:
    """Within the block, what kernels' wrappers ask about a device is answered for the named one."""
    answers = {
        "has_float8": device.capability >= 89,
        "multiprocessors": device.multiprocessors,
        "shared_memory_kib": device.shared_kib,
    }
    replaced = []
    for name, module in list(sys.modules.items()):
        if not name.startswith("penstock_engine.kernels."):
            continue
        for function in answers.keys() & vars(module).keys():
            replaced.append((module, function, getattr(module, function)))
            setattr(module, function, lambda device, answer=answers[function]: answer)
    try:
        yield
    finally:
        for module, function, original in replaced:
            setattr(module, function, original)


def all_kernels() -> set[str]:
    """The names of the kernels of the engine's package: what Triton compiles and a wrapper launches."""
    from triton.runtime.jit import KernelInterface

    package = penstock_engine.kernels
    names: set[str] = set()
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        members = vars(importlib.import_module(module.name)).values()
        names |= {m.__name__ for m in members if isinstance(m, KernelInterface)}
    return {name for name in names if name.endswith("_kernel")}
