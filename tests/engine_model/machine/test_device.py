"""Tests of device limits: CPU flags, threads, memory limits, and the memory estimates of the sampler."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from penstock_engine.core.errors import ModelError
from penstock_engine.machine import device
from penstock_engine.machine.device import (
    DeviceMemory,
    activation_bytes,
    choose_device,
    choose_dtype,
    cpu_flags,
    device_memory,
    gathered_bytes,
    memory_limit_bytes,
    num_kv_blocks,
    num_threads,
    resident_bytes,
    sampling_bytes,
)

MIB = 2**20
ROOT = Path(__file__).parents[3]


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


def test_blocks_that_fit() -> None:
    sizes = {"kv_bytes_per_token": 1024, "block_size": 16}
    assert num_kv_blocks(kv_bytes=MIB, max_model_len=1024, **sizes) == 64
    with pytest.raises(ModelError, match=r"room for 1024 tokens.* may have 1025: give it 2 MiB"):
        num_kv_blocks(kv_bytes=MIB, max_model_len=1025, **sizes)
    with pytest.raises(ModelError, match="room for 0 tokens"):
        num_kv_blocks(kv_bytes=-5, max_model_len=1, **sizes)


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


def test_activations_grow_with_the_batch() -> None:
    small = activation_bytes(num_tokens=512, hidden_size=256, intermediate_size=768)
    assert 10 * MIB < small < 30 * MIB
    assert activation_bytes(num_tokens=1024, hidden_size=256, intermediate_size=768) == 2 * small


def test_drawing_grows_with_vocabulary_and_drafts() -> None:
    sizes = {"max_num_seqs": 64, "item_bytes": 4, "device": "cpu"}
    small = sampling_bytes(vocab_size=8192, rows_per_sequence=1, **sizes)
    large = sampling_bytes(vocab_size=150_000, rows_per_sequence=1, **sizes)
    drafted = sampling_bytes(vocab_size=150_000, rows_per_sequence=5, **sizes)
    assert large > small + 64 * 140_000 * 4
    assert drafted == large + 4 * 64 * 150_000 * 4


@pytest.mark.parametrize(("device", "num_bytes"), [("cpu", 160), ("cuda", 24)])
def test_log_probabilities_that_are_told_are_counted(device: str, num_bytes: int) -> None:
    sizes = {"max_num_seqs": 64, "rows_per_sequence": 2, "vocab_size": 8192, "item_bytes": 4}
    none = sampling_bytes(**sizes, device=device)
    told = sampling_bytes(**sizes, device=device, max_logprobs=8192, max_num_batched_tokens=512)
    assert told - none == (128 + 512) * 8192 * num_bytes


def measured_bytes(code: str) -> int:
    """Bytes printed by `code` in a new process, as this one could reuse memory of earlier tests."""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(result.stdout)


DRAW = """
import torch, benchmarks.engine.sampling_cost as cost
settings, length = cost.mixes(152_000)["all of these"]
sequences = cost.sequences_of(settings, 12, 4, length, 152_000)
print(cost.measure(sequences, 152_000, torch.float32, 1)[1])
"""


def test_drawing_takes_no_more_than_is_counted() -> None:
    """The estimate holds with all sampling parameters, 20 log-probabilities and 4 drafts."""
    counted = sampling_bytes(
        max_num_seqs=12, rows_per_sequence=5, vocab_size=152_000, item_bytes=4, device="cpu"
    )
    assert counted / 3 < measured_bytes(DRAW) < counted


TELL = """
import torch, benchmarks.engine.sampling_cost as cost
sequences = cost.sequences_of([{"logprobs": 152_000}], 12, 0, 100, 152_000)
print(cost.measure(sequences, 152_000, torch.float32, 1)[1])
"""


def test_telling_of_the_whole_vocabulary_takes_no_more_than_is_counted() -> None:
    counted = sampling_bytes(
        max_num_seqs=12, rows_per_sequence=1, vocab_size=152_000, item_bytes=4, device="cpu",
        max_logprobs=152_000,
    )  # fmt: skip
    assert counted / 3 < measured_bytes(TELL) < counted


ATTEND = """
import torch
from benchmarks.engine.sampling_cost import peak_of
from penstock_engine.kernels.kv_quant import quantize_kv
from penstock_engine.layers.attention import AttentionShape, QKV, Span
from penstock_engine.layers.gathered_attention import GatheredAttention
from penstock_engine.layers.kv_cache import KVCache
ends, num_new, num_blocks = {ends}, {num_new}, 16 * 512
cache = KVCache.zeros((2, num_blocks + 1, 16, 2, 64), torch.int8, is_scaled=True, device="cpu")
cache.numbers.random_(-100, 100)
cache.scales.fill_(0.01)
spans = [
    Span(end - num_new, end, tuple(range(512 * row, 512 * row + 512))) for row, end in enumerate(ends)
]
slots = torch.arange(len(ends) * num_new)
heads = QKV(*(torch.randn(len(slots), size, 64) for size in (14, 2, 2)))
def attend():
    step = GatheredAttention(spans, slots, dtype=torch.float32, is_quantized=True)
    step(heads, cache, AttentionShape(0.1))
attend()
print(peak_of(attend))
"""


@pytest.mark.parametrize(
    ("ends", "num_new"), [([8192] * 16, 1), ([8192], 600)], ids=["tokens", "chunk"]
)
def test_attention_takes_no_more_than_is_counted(ends: list[int], num_new: int) -> None:
    """Over an int8 cache, which as float32 would be 128 MiB."""
    counted = gathered_bytes(max_num_seqs=16, num_visible_tokens=8192, token_bytes=2 * 2 * 64 * 4)
    measured = measured_bytes(ATTEND.format(ends=ends, num_new=num_new))
    assert counted / 4 < measured < counted + 4 * MIB


ALLOCATE = """
import torch
from penstock_engine.machine.device import resident_bytes
from penstock_engine.layers.host_blocks import HostBlocks
from penstock_engine.layers.kv_cache import KVCache
before = resident_bytes()
cache = KVCache.zeros((2, 16384, 16, 2, 64), torch.{dtype}, is_scaled={is_scaled}, device="cpu")
blocks = HostBlocks(cache.parts, 4096)
cache.numbers[:, 5].fill_(1)
blocks.save(5, 7)
blocks.restore(7, 8)
assert (cache.numbers[:, 8].float() == 1).all() and not cache.numbers[:, 9:200].float().any()
print(resident_bytes() - before)
"""


@pytest.mark.parametrize(
    ("dtype", "is_scaled"), [("float32", False), ("bfloat16", False), ("float8_e4m3fn", True)]
)
def test_blocks_take_memory_when_they_are_used(dtype: str, is_scaled: bool) -> None:
    """All of them are from 68 to 320 MiB; the code of the operations takes some MiB itself."""
    assert measured_bytes(ALLOCATE.format(dtype=dtype, is_scaled=is_scaled)) < 40 * MIB


@pytest.mark.parametrize("has_nvml", [True, False])
def test_gpu_readings(monkeypatch: pytest.MonkeyPatch, has_nvml: bool) -> None:
    """All GPUs are read with NVML; without it only the one on which this process has a context."""
    cuda = torch.cuda
    properties = SimpleNamespace(total_memory=80)
    monkeypatch.setattr(device, "find_spec", lambda _: object() if has_nvml else None)
    monkeypatch.setattr(cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(cuda, "device_memory_used", lambda index: 10 * (index + 1))
    monkeypatch.setattr(cuda, "utilization", lambda _: 25)
    monkeypatch.setattr(cuda, "mem_get_info", lambda _: (70, 80))
    both = [device.GpuReading(10, 80, 0.25), device.GpuReading(20, 80, 0.25)]
    assert device.gpu_readings(2) == (both if has_nvml else [device.GpuReading(10, 80, None)])
    assert device.gpu_readings(0) == []
