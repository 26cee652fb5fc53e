"""Rates of a fetch, of one curl, and of the disk, for the same bytes."""

import os
import random
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from tests.support.sources.model_files import safetensors_header
from tests.support.sources.object_store import KEY, REGION, SECRET, s3_server

from penstock_engine.sources.fetch import fetch_model
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.progress import Progress

BUCKET, NAME = "models", "model.safetensors"
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second of each way, in one pair."""

    fetch: float
    curl: float
    disk: float


def measure_rates(folder: Path, num_bytes: int, num_pairs: int) -> list[Rates]:
    """Measure all three ways once in each pair, in another order each time. folder: empty, on the disk."""
    bucket = folder / "buckets" / BUCKET
    bucket.mkdir(parents=True)
    (bucket / "config.json").write_text("{}")
    write_weights(bucket / NAME, num_bytes)
    with s3_server(bucket.parent) as url:
        settings = {
            "AWS_ENDPOINT_URL": url, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }  # fmt: skip
        ways: dict[str, Callable[[Path], None]] = {
            "fetch": fetch,
            "curl": lambda target: curl(f"{url}/{BUCKET}/{NAME}", target),
            "disk": lambda target: write_weights(target, num_bytes),
        }
        with patch.dict(os.environ, settings):
            return [_measure_pair(ways, folder, num_bytes, number) for number in range(num_pairs)]


def _measure_pair(
    ways: Mapping[str, Callable[[Path], None]], folder: Path, num_bytes: int, seed: int
) -> Rates:
    names = sorted(ways)
    random.Random(seed).shuffle(names)
    return Rates(**{name: num_bytes / seconds(ways[name], folder / name) for name in names})


def seconds(way: Callable[[Path], None], target: Path) -> float:
    """Seconds of one way to bring the bytes to a place, which is removed again."""
    os.sync()  # what the way before has left to write
    start_s = time.monotonic()
    way(target)
    lasted_s = time.monotonic() - start_s
    subprocess.run(["rm", "-rf", target], check=True)
    return lasted_s


def fetch(target: Path) -> None:
    fetch_model(f"s3://{BUCKET}", target, None, FetchLimits(), Progress(lambda _: None))


def curl(url: str, target: Path) -> None:
    """Fetch one object by one connection."""
    flags = (
        "--fail", "--silent", "--show-error", "--user", f"{KEY}:{SECRET}",
        "--aws-sigv4", f"aws:amz:{REGION}:s3", "--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
    )  # fmt: skip
    subprocess.run(["curl", *flags, "--output", target, url], check=True)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def write_weights(path: Path, num_bytes: int) -> None:
    """Write a safetensors file with so many bytes of one tensor, and flush it to the disk."""
    block = random.Random(1).randbytes(BLOCK_BYTES)
    with path.open("wb") as file:
        file.write(safetensors_header(num_bytes))
        for _ in range(num_bytes // BLOCK_BYTES):
            file.write(block)
        file.write(block[: num_bytes % BLOCK_BYTES])
        file.flush()
        os.fsync(file.fileno())
