"""Tests of device limits: CPU flags, threads, memory limits, and the memory estimates of the sampler."""

import os
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
import torch

from penstock_engine.core.errors import ModelError
from penstock_engine.machine import device
from penstock_engine.machine.device import (
    DeviceMemory,
    choose_device,
    choose_dtype,
    cpu_flags,
    device_memory,
    memory_limit_bytes,
    num_threads,
    resident_bytes,
)

MIB = 2**20


@pytest.mark.parametrize(
    ("text", "is_native"),
    [
        ("processor : 0\nflags\t\t: fpu avx512_bf16 sse\n", True),
        ("flags : fpu avx2\n", False),
        ("Features\t: fp asimd bf16\n", True),
        ("model name : x\n", False),
    ],
    ids=["x86", "x86-old", "arm", "unknown"],
)
def test_flags_of_the_cpu(tmp_path: Path, text: str, is_native: bool) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    flags = cpu_flags(tmp_path / "cpuinfo")
    assert bool(flags & {"avx512_bf16", "amx_bf16", "bf16"}) == is_native


def test_an_explicit_choice_is_kept() -> None:
    assert choose_device("cpu") == "cpu"
    assert choose_dtype("float16", "cpu") == "float16"
    assert choose_dtype("auto", "cpu") in ("float32", "bfloat16")


@pytest.mark.parametrize(
    ("limit", "expected"), [("1", 1), ("0", 1), ("0.5", 1), ("1.9", 1), ("100000", None)]
)
def test_threads_follow_the_pods_limit(limit: str, expected: int | None) -> None:
    """At least one, and never more than there are cores."""
    assert num_threads({"PENSTOCK_CPU_LIMIT": limit}) == (expected or num_threads({}))


def make_root(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal:  1024000 kB\n", **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("env", "files", "expected"),
    [
        ({}, {"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/cpu.max": "max 100000\n"}, None),
        ({}, {"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/cpu.max": "190000 100000\n"}, 1),
        ({}, {"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/cpu.max": "20000 100000\n"}, 1),
        (
            {},
            {
                "proc/self/cgroup": "2:cpu,cpuacct:/x\n1:memory:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "150000\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            1,
        ),
        (
            {"PENSTOCK_CPU_LIMIT": "1"},
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "9900000 100000\n"},
            1,
        ),
    ],
    ids=["v2-max", "v2", "v2-parent", "v1", "pod"],
)
def test_threads_follow_the_quota(
    tmp_path: Path, env: dict[str, str], files: dict[str, str], expected: int | None
) -> None:
    """Threads without quota stand still, and the others wait for them."""
    cores = len(os.sched_getaffinity(0))
    assert num_threads(env, make_root(tmp_path, files)) == min(cores, expected or cores)


V1_UNLIMITED = "9223372036854771712"


@pytest.mark.parametrize(
    ("env", "files", "expected_mib"),
    [
        ({}, {}, 1000),
        ({"PENSTOCK_MEMORY_LIMIT_BYTES": str(300 * MIB)}, {}, 300),
        (
            {},
            {"proc/self/cgroup": "0::/pod/c\n", "sys/fs/cgroup/pod/memory.max": f"{200 * MIB}\n"},
            200,
        ),
        ({}, {"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/memory.max": "max\n"}, 1000),
        ({}, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{100 * MIB}\n"}, 100),
        (
            {},
            {
                "proc/self/cgroup": "5:cpu:/x\n4:memory:/x\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{50 * MIB}\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": V1_UNLIMITED,
            },
            50,
        ),
    ],
    ids=["physical", "pod", "v2-parent", "v2-max", "v2-container", "v1"],
)
def test_the_smallest_memory_limit_counts(
    tmp_path: Path, env: dict[str, str], files: dict[str, str], expected_mib: int
) -> None:
    """A pod that sizes its cache by the host's memory is killed by its own limit."""
    assert memory_limit_bytes(env, make_root(tmp_path, files)) == expected_mib * MIB


def test_this_machine_has_limits() -> None:
    assert 0 < resident_bytes() < memory_limit_bytes()


def test_the_gpu_with_the_least_usable_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of other programs is not usable, and neither is what the utilization leaves."""
    free_and_total = [(70, 80), (30, 40), (40, 40)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "mem_get_info", free_and_total.__getitem__)
    memory = device_memory("cuda", utilization=0.9, num_devices=3)
    assert memory == DeviceMemory(40, used_bytes=10)
    assert memory.usable_bytes(0.9) == 26
    with pytest.raises(ModelError, match="4 devices are needed, but there are 3"):
        device_memory("cuda", utilization=0.9, num_devices=4)
    assert device_memory("cpu", utilization=0.9) == DeviceMemory(memory_limit_bytes())


@pytest.mark.parametrize(
    "error",
    [
        None,
        ModuleNotFoundError("nvidia-ml-py does not seem to be installed"),
        RuntimeError("device 0 is not visible (CUDA_VISIBLE_DEVICES=[])"),
        pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED),
    ],
)
def test_gpu_readings(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    """All GPUs are read with NVML; without it only the one on which this process has a context."""
    cuda = torch.cuda
    properties = SimpleNamespace(total_memory=80)

    def utilization(_: int) -> int:
        if error:
            raise error
        return 25

    monkeypatch.setattr(cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(cuda, "device_memory_used", lambda index: 10 * (index + 1))
    monkeypatch.setattr(cuda, "utilization", utilization)
    monkeypatch.setattr(cuda, "mem_get_info", lambda _: (70, 80))
    both = [device.GpuReading(10, 80, 0.25), device.GpuReading(20, 80, 0.25)]
    assert device.gpu_readings(2) == ([device.GpuReading(10, 80, None)] if error else both)
    assert device.gpu_readings(0) == []
