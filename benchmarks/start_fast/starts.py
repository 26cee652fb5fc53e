"""Measures all ways to start, alternating, at each rate of the server."""

import hashlib
import multiprocessing
import os
import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.start_fast import steps
from benchmarks.start_fast.checkpoint import write_checkpoint
from benchmarks.start_fast.rate_limit import rate_limited
from benchmarks.start_fast.steps import Step
from tests.support.sources.object_store import KEY, REGION, SECRET, s3_server

BUCKET = "models"
URI = f"s3://{BUCKET}/model"
MIB = 1 << 20
# Limits of the server's rate in MiB/s; None: no limit. 100 and 400 are about networks of 1 and 4 Gbit/s.
RATES = (None, 400, 100)


@dataclass(frozen=True, slots=True)
class Pair:
    """Times of each way of starting, measured once. load_average: before them."""

    rate: int | None
    load_average: float
    by_way: dict[str, Step]


def measure_starts(
    folder: Path, num_bytes: int, num_pairs: int, runai_python: str
) -> Iterator[Pair]:
    """Measure each way once in each pair, in another order each time. folder: empty, on the disk.

    runai_python: a Python that has runai-model-streamer; empty: it is left out. Raises ValueError if two
    ways have loaded other numbers.
    """
    buckets = folder / "buckets"
    write_checkpoint(buckets / BUCKET / "model", num_bytes)
    for path in (buckets / BUCKET / "model").iterdir():
        # versitygw keeps the ETag of an upload here. runai-model-streamer reads no object without one.
        os.setxattr(path, "user.etag", hashlib.md5(path.name.encode()).hexdigest().encode())
    with s3_server(buckets) as url:
        for number in range(num_pairs):
            for rate in RATES:
                with _limited(url, rate) as endpoint:
                    yield _measure_pair(folder, endpoint, rate, number, runai_python)


@contextmanager
def _limited(url: str, rate: int | None) -> Iterator[str]:
    if rate is None:
        yield url
        return
    with rate_limited(url, rate * MIB) as endpoint:
        yield endpoint


def _measure_pair(
    folder: Path, endpoint: str, rate: int | None, number: int, runai_python: str
) -> Pair:
    settings = {
        "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }  # fmt: skip
    load_average = os.getloadavg()[0]
    ways: list[Callable[[], dict[str, Step]]] = [
        lambda: _fetch_and_load(folder / "fetched", settings),
        lambda: {"stream": _in_process(steps.stream, URI, settings, False)},
        lambda: {"stream, SHA-256": _in_process(steps.stream, URI, settings, True)},
    ]
    if runai_python:
        ways.append(lambda: {"runai": steps.runai(runai_python, URI, settings)})
    random.Random(f"{number} {rate}").shuffle(ways)
    by_way: dict[str, Step] = {}
    for way in ways:
        os.sync()  # what the way before has left to write
        by_way |= way()
    if len({step.checksum for step in by_way.values()} - {None}) != 1:
        raise ValueError(f"two ways have loaded other numbers: {by_way}")
    return Pair(rate, load_average, by_way)


def _fetch_and_load(target: Path, settings: dict[str, str]) -> dict[str, Step]:
    """Fetch a model, and load it: as the fetch left the page cache, and without it."""
    by_step = {"fetch": _in_process(steps.fetch, URI, target, settings)}
    loaders = {"load": steps.load, "load_file": steps.load_files}
    for name, loader in loaders.items():
        by_step[name] = _in_process(loader, target)
    for name, loader in loaders.items():
        steps.drop_from_page_cache(target)
        by_step[f"{name}, dropped"] = _in_process(loader, target)
    shutil.rmtree(target)
    return by_step


def _in_process(step: Callable[..., Step], *arguments: object) -> Step:
    """Run a step in a new process, in which its packages are imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.start_fast.steps"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(step, *arguments).result()
