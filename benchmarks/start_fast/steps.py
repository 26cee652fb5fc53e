"""The steps of a start that are measured, each in a process of its own."""

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from json import loads
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from benchmarks.start_fast import runai_child
from benchmarks.start_fast.stream import build_model, stream_model
from safetensors.torch import load_file

from penstock_engine.checkpoints.loading import load_weights
from penstock_engine.sources.fetch import fetch_model
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.progress import Progress


@dataclass(frozen=True, slots=True)
class Step:
    """Time and memory of one step. checksum: of all numbers of all tensors, read once; None of a fetch."""

    seconds: float
    cpu_s: float  # of the processor, of all threads, which the load of the machine disturbs little
    peak_bytes: int  # resident, with the interpreter, its packages, and mapped pages of files
    anonymous_bytes: int  # resident at the end, and in no file
    checksum: int | None


def fetch(uri: str, target: Path, settings: Mapping[str, str]) -> Step:
    """Fetch a model into a folder with the product."""
    os.environ.update(settings)

    def run() -> None:
        fetch_model(uri, target, None, FetchLimits(), Progress(lambda _: None))

    return _measured(run)


def load(folder: Path) -> Step:
    """Load a folder with the engine's loader."""

    def run() -> int:
        model = build_model(folder)
        names = model.shard.config.family.names
        load_weights(model, folder, names, torch.bfloat16, "cpu")
        kept.append(model)
        return _checksum(model.parameters())

    kept: list[object] = []  # until the memory is read
    return _measured(run)


def stream(uri: str, settings: Mapping[str, str], is_hashed: bool) -> Step:
    """Stream a model into the engine's parameters with the prototype."""
    os.environ.update(settings)
    kept: list[object] = []

    def run() -> int:
        with TemporaryDirectory() as folder:
            model, _ = stream_model(uri, Path(folder), FetchLimits(), is_hashed)
        kept.append(model)
        return _checksum(model.parameters())

    return _measured(run)


def load_files(folder: Path) -> Step:
    """Load the tensors of a folder unchanged, with the safetensors library."""
    kept: list[dict[str, torch.Tensor]] = []

    def run() -> int:
        kept.extend(load_file(path) for path in sorted(folder.glob("*.safetensors")))
        return _checksum(tensor for tensors in kept for tensor in tensors.values())

    return _measured(run)


def runai(python: str, uri: str, settings: Mapping[str, str]) -> Step:
    """Stream the tensors with runai-model-streamer, which `python` has."""
    done = subprocess.run(
        [python, runai_child.__file__, uri],
        env=os.environ | settings | {"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Step(*loads(done.stdout.splitlines()[-1]))


def drop_from_page_cache(folder: Path) -> None:
    """Have the kernel forget the content of the weights, as if other files had filled the memory."""
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _measured(run: Callable[[], int | None]) -> Step:
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    checksum = run()
    seconds, cpu_s = time.monotonic() - start_s, time.process_time() - start_cpu_s
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    peak_bytes, anonymous_bytes = (
        int(status[field].split()[0]) << 10 for field in ("VmHWM", "RssAnon")
    )
    return Step(seconds, cpu_s, peak_bytes, anonymous_bytes, checksum)


def _checksum(tensors: Iterable[torch.Tensor]) -> int:
    """The sum of all tensors as 64-bit numbers, modulo 2^64: the same however tensors are packed."""
    return sum(int(tensor.flatten().view(torch.int64).sum()) for tensor in tensors) % 2**64
