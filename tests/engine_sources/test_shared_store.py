"""Several fetches with one store: they share its space, its files, and what killed ones have left."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine_sources.conftest import Fetch
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import model_files
from tests.support.sources.quick_limits import QUICK

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.fetch import fetch_model
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.progress import Progress
from penstock_engine.sources.storage.cleaning import ABANDONED_IF_FULL_S, used_bytes
from penstock_engine.sources.storage.lease import try_acquire
from penstock_engine.sources.storage.model_folder import MARKER_NAME
from penstock_engine.sources.storage.store import Store

ROOM_FOR_ONE = replace(QUICK, cache_bytes=300_000)  # of 200 kB


def own_files(seed: int, num_bytes: int) -> dict[str, bytes]:
    """Files of a model that shares none with other seeds."""
    files = model_files(num_bytes, seed)
    return files | {name: files[name] + b" " * seed for name in ("config.json", "tokenizer.json")}


def wait_for(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


@contextmanager
def slow_fetch(
    hub: HubServer, fetch: Fetch, uri: str, limits: FetchLimits
) -> Iterator[threading.Thread]:
    """Fetch into the folder "slow" in a thread, whose weights come slowly until the block ends."""
    hub.cdn.delay_s = 0.2
    thread = threading.Thread(target=lambda: fetch(uri, into="slow", limits=limits))
    thread.start()
    try:
        wait_for(lambda: hub.cdn.requests or not thread.is_alive())
        yield thread
    finally:
        hub.cdn.delay_s = 0.0
        thread.join()


def test_fetches_at_the_same_time_stay_below_the_limit(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    hub.add("org/first", own_files(1, 4_000_000))
    hub.add("org/second", own_files(2, 4_000_000))
    limits, store = replace(QUICK, cache_bytes=6_000_000), Store(tmp_path / "cache")
    with slow_fetch(hub, fetch, "hf://org/first", limits):
        with pytest.raises(FetchError, match="CacheLimit"):
            fetch("hf://org/second", limits=limits)
        assert used_bytes(store) < 2_000_000, "most of the first model is still to come"
    assert (tmp_path / "slow" / MARKER_NAME).is_file()
    assert fetch("hf://org/second", limits=limits).num_files == 3, "it evicts the first one"
    assert used_bytes(store) <= 6_000_000


def test_a_file_that_another_fetch_has_downloaded_is_not_waited_for_until_that_ends(
    hub: HubServer, tmp_path: Path
) -> None:
    files = model_files()
    hub.add("org/name", files)
    store, lines = Store(tmp_path / "cache"), list[str]()
    sha1 = hashlib.sha1(b"blob %d\0" % len(files["tokenizer.json"]) + files["tokenizer.json"])
    blob = f"git-sha1/{sha1.hexdigest()}"
    lease = try_acquire(store.lease_path(blob))
    assert lease is not None
    with lease, ThreadPoolExecutor() as pool:
        arguments = "hf://org/name", tmp_path / "model", store.root, QUICK, Progress(lines.append)
        result = pool.submit(fetch_model, *arguments)
        wait_for(lambda: "Waiting for another process, which fetches tokenizer.json" in lines)
        store.blob_path(blob).parent.mkdir(parents=True, exist_ok=True)
        store.blob_path(blob).write_bytes(files["tokenizer.json"])
        assert result.result(timeout=60).num_cache_hits == 1


@pytest.mark.parametrize(("age_s", "is_removed"), [(ABANDONED_IF_FULL_S + 60, True), (60, False)])
def test_blobs_of_an_eviction_that_was_killed_make_room(
    hub: HubServer, fetch: Fetch, tmp_path: Path, age_s: float, is_removed: bool
) -> None:
    hub.add("org/name", model_files())
    blob = tmp_path / "cache/blobs/sha256" / ("0" * 64)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(bytes([1]) * 200_000)
    os.utime(blob, (time.time() - age_s, time.time() - age_s))
    if is_removed:
        fetch("hf://org/name", limits=ROOM_FOR_ONE)
    else:
        with pytest.raises(FetchError, match="CacheLimit"):
            fetch("hf://org/name", limits=ROOM_FOR_ONE)
    assert blob.exists() is not is_removed


def test_a_model_in_use_is_marked_as_whole_all_the_time(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    hub.add("org/name", model_files())
    fetch("hf://org/name")
    store = Store(tmp_path / "cache")
    (model,) = (tmp_path / "cache/models/hf").iterdir()
    os.utime(model / MARKER_NAME, (1, 1))
    lease = try_acquire(store.new_use_path(model))
    assert lease is not None
    with lease:
        assert not store.remove_model(model)
    assert (model / MARKER_NAME).stat().st_mtime == 1
    assert store.remove_model(model)
    assert not model.exists()
