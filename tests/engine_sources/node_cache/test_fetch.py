"""Pods that fetch with the cache of their node: one download for all, or else each one its own."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.sources.faults import Fault
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import fetched_names, model_files
from tests.support.sources.node_cache import NOT_USED, fetch_as_pod, links, node_cache, wait_for
from tests.support.sources.quick_limits import QUICK

from penstock_engine.contract.model_source import parse_model_source
from penstock_engine.contract.node_cache import SOCKET_NAME
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.fetch import OWN_STORE, StoredModel
from penstock_engine.sources.node_cache import app, client, fetches
from penstock_engine.sources.node_cache.client import fetch_with_node_cache
from penstock_engine.sources.progress import Progress
from penstock_engine.sources.storage.lease import is_held
from penstock_engine.sources.storage.model_folder import read_manifest
from penstock_engine.sources.storage.store import Store

FILES = model_files()
NUM_BYTES = sum(len(FILES[name]) for name in fetched_names(FILES))
LIMITS = replace(QUICK, cache_bytes=300_000)  # room for one model of 200 kB


@pytest.fixture
def cache(hub: HubServer, tmp_path: Path) -> Path:
    """The folder of a cache. The hub has three models, one of them of another organization."""
    hub.add("org/name", FILES)
    hub.add("org/other", model_files(seed=1))
    hub.add("strangers/name", model_files(seed=2))
    return tmp_path / "cache"


@pytest.fixture
def server(cache: Path) -> Iterator[list[str]]:
    """A server that may fetch from hf://org; its lines."""
    with node_cache(cache) as lines:
        yield lines


def check_whole(folder: Path, files: dict[str, bytes]) -> None:
    manifest = read_manifest(folder)
    assert manifest is not None
    assert {file.name: (folder / file.name).read_bytes() for file in manifest.files} == {
        name: files[name] for name in fetched_names(files)
    }


def check_own(folder: Path, files: dict[str, bytes]) -> None:
    """Check that a folder has its own copy of a model."""
    check_whole(folder, files)
    assert links(folder) == []


def test_pods_share_one_download(
    cache: Path, server: list[str], hub: HubServer, tmp_path: Path
) -> None:
    hub.cdn.delay_s = 0.05  # so that the second pod asks meanwhile
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(fetch_as_pod, "hf://org/name", tmp_path / name, cache) for name in "ab"]
        results = [job.result() for job in jobs]
    sent_bytes = hub.cdn.sent_bytes
    results.append(fetch_as_pod("hf://org/name", tmp_path / "c", cache))
    assert hub.cdn.sent_bytes == sent_bytes == len(FILES["model.safetensors"])
    commit = hub.repositories["org/name"].revisions["main"]
    assert {(each.resolved_uri, each.total_bytes, each.num_files) for each in results} == {
        (f"hf://org/name@{commit}", NUM_BYTES, 3)
    }
    counts = [(each.downloaded_bytes, each.num_cache_hits) for each in results]
    assert sorted(counts[:2]) == [(0, 3), (NUM_BYTES, 0)]
    assert counts[2] == (0, 3)
    for name in "abc":
        check_whole(tmp_path / name, FILES)
        assert len(links(tmp_path / name)) == 3
        assert all(link.startswith(f"{cache}/blobs/") for link in links(tmp_path / name))


def test_a_resolved_model_of_the_cache_asks_the_source_nothing(
    cache: Path, server: list[str], hub: HubServer, tmp_path: Path
) -> None:
    uri = fetch_as_pod("hf://org/name", tmp_path / "a", cache).resolved_uri
    num_requests = len(hub.requests)
    assert fetch_as_pod(uri, tmp_path / "b", cache).resolved_uri == uri
    assert len(hub.requests) == num_requests


def test_a_pod_fetches_itself_what_is_not_allowed(
    cache: Path, server: list[str], tmp_path: Path
) -> None:
    said: list[str] = []
    model = tmp_path / "model"
    result = fetch_as_pod("hf://strangers/name", model, cache, say=said.append)
    assert said[0] == (
        f"{NOT_USED} {cache} is not used: its server does not fetch from this source: --allow does not name "
        "it"
    )
    assert result.downloaded_bytes > 0
    check_own(model, model_files(seed=2))
    assert not (cache / "blobs").exists()


@pytest.mark.parametrize("is_socket_left", [False, True])
def test_a_pod_fetches_itself_without_a_server(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_socket_left: bool
) -> None:
    monkeypatch.setattr(client, "RETRY_FOR_S", 0.1)
    cache.mkdir()
    if is_socket_left:
        with node_cache(cache):
            os.link(cache / SOCKET_NAME, cache / "left")
        (cache / "left").rename(cache / SOCKET_NAME)
    said: list[str] = []
    fetch_as_pod("hf://org/name", tmp_path / "model", cache, say=said.append)
    reason = (
        "nothing listens at node-cache.sock"
        if is_socket_left
        else "there is no node-cache.sock: this node runs no server of the cache"
    )
    assert said[:2] == [
        f"The cache of the node is asked again: {reason}",
        f"{NOT_USED} {cache} is not used: {reason}",
    ]
    check_own(tmp_path / "model", FILES)


def test_a_pod_waits_for_a_server_that_starts_after_it(cache: Path, tmp_path: Path) -> None:
    cache.mkdir()
    said: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(fetch_as_pod, "hf://org/name", tmp_path / "model", cache, say=said.append)
        wait_for(lambda: said)
        with node_cache(cache):
            assert job.result().downloaded_bytes == NUM_BYTES
    assert len(links(tmp_path / "model")) == 3


def test_a_pod_fetches_itself_what_does_not_fit(
    cache: Path, hub: HubServer, tmp_path: Path
) -> None:
    said: list[str] = []
    with node_cache(cache, limits=LIMITS):
        fetch_as_pod("hf://org/name", tmp_path / "a", cache, replace(QUICK, hold_s=600))
        fetch_as_pod("hf://org/other", tmp_path / "b", cache, say=said.append)
    assert "CacheLimit" in said[0]
    check_own(tmp_path / "b", model_files(seed=1))
    check_whole(tmp_path / "a", FILES)


def test_the_longest_hold_after_a_fetch_counts_and_further_ones_leave_no_files(
    cache: Path, server: list[str], tmp_path: Path
) -> None:
    for hold_s in (600, 0.01, 500):
        fetch_as_pod("hf://org/name", tmp_path / "model", cache, replace(QUICK, hold_s=hold_s))
    (lease,) = cache.glob("uses/*/*")
    assert is_held(lease)
    status = lease.stat()
    os.utime(lease, (status.st_mtime - 550, status.st_mtime - 550))
    assert is_held(lease)
    os.utime(lease, (status.st_mtime - 601, status.st_mtime - 601))
    assert not is_held(lease)


def test_the_progress_of_the_server_is_that_of_the_pod(
    cache: Path, server: list[str], hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "PROGRESS_S", 0.01)
    hub.cdn.delay_s = 0.2  # of each block
    said: list[str] = []
    progress = Progress(said.append, 0.01)
    thread = threading.Thread(
        target=fetch_with_node_cache,
        args=("hf://org/name", tmp_path / "model", cache, QUICK, progress),
    )
    thread.start()
    wait_for(lambda: progress.state().done_bytes > 0)
    state = progress.state()
    assert 0 < state.done_bytes == state.downloaded_bytes <= state.total_bytes == NUM_BYTES
    wait_for(lambda: any(line.startswith("Fetching: 0.1 of 0.2 MiB") for line in said))
    thread.join()
    check_whole(tmp_path / "model", FILES)


def test_a_folder_changes_between_own_files_and_the_cache(
    cache: Path, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The init container of a pod may run again, with another state of the node."""
    monkeypatch.setattr(client, "RETRY_FOR_S", 0.1)
    cache.mkdir()
    model = tmp_path / "model"
    fetch_as_pod("hf://org/name", model, cache)
    assert (model / OWN_STORE).exists()
    with node_cache(cache):
        fetch_as_pod("hf://org/name", model, cache)
        assert len(links(model)) == 3
        assert not (model / OWN_STORE).exists()
    fetch_as_pod("hf://org/name", model, cache)
    check_own(model, FILES)


def test_a_failure_of_the_source_is_that_of_the_pods_own_fetch(
    cache: Path, server: list[str], tmp_path: Path
) -> None:
    said: list[str] = []
    with pytest.raises(FetchError, match="RepositoryNotFound"):
        fetch_as_pod("hf://org/absent", tmp_path / "model", cache, say=said.append)
    assert said[0].startswith(f"{NOT_USED} {cache} is not used: RepositoryNotFound: ")


def test_models_that_do_not_exist_leave_nothing(
    cache: Path, server: list[str], tmp_path: Path
) -> None:
    """A pod may ask for any number of commits."""
    with pytest.raises(FetchError):
        fetch_as_pod(f"hf://org/name@{'1' * 40}", tmp_path / "model", cache)
    wait_for(lambda: not [*cache.glob("uses/*")])
    assert not [path for path in cache.rglob("*") if path.is_file() and path.stat().st_size]


def test_the_socket_may_be_at_a_long_path(hub: HubServer, tmp_path: Path) -> None:
    hub.add("org/name", FILES)
    cache = tmp_path / ("long" * 40) / "cache"
    cache.parent.mkdir()
    with node_cache(cache):
        assert fetch_as_pod("hf://org/name", tmp_path / "model", cache).num_files == 3
        assert len(links(tmp_path / "model")) == 3


def test_a_fetch_that_hangs_ends_the_server(cache: Path, hub: HubServer, tmp_path: Path) -> None:
    """A library waits for a byte now and then. Nothing in the process can end that."""
    hub.faults.add(Fault("trickle", "api/models", times=1))
    ended = threading.Event()
    limits = replace(QUICK, deadline_s=0.5)
    with (
        node_cache(cache, limits=limits, end=ended.set) as lines,
        ThreadPoolExecutor(1) as pool,
    ):
        job = pool.submit(fetch_as_pod, "hf://org/name", tmp_path / "model", cache)
        assert ended.wait(60)
        assert any("hangs after its deadline" in line for line in lines)
        job.result()


def test_more_models_at_a_time_wait_for_others(
    cache: Path, server: list[str], hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetches, "MAX_FETCHES", 1)
    hub.cdn.delay_s = 1.0  # of each block, until the second pod was refused
    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(fetch_as_pod, "hf://org/name", tmp_path / "a", cache)]
        wait_for(lambda: hub.requests)
        other = ("hf://org/other", tmp_path / "b", cache, QUICK, said.append)
        jobs.append(pool.submit(fetch_as_pod, *other))
        wait_for(lambda: said)
        hub.cdn.delay_s = 0.0
        for job in jobs:
            job.result()
    assert said == [
        "The cache of the node is asked again: its server has reached its limit of parallel fetches"
    ]
    assert len(links(tmp_path / "b")) == 3


def test_a_fetched_model_is_in_use_until_the_last_pod_has_its_answer(
    cache: Path, hub: HubServer
) -> None:
    """In between, another fetch may need the room."""
    jobs = fetches.Fetches(Store(cache), QUICK, lambda _: None, lambda: None)
    source = parse_model_source("hf://org/name")
    (job, is_first), (same, is_second_first) = jobs.join(source), jobs.join(source)
    assert (job is same, is_first, is_second_first) == (True, True, False)
    model = job.result.result()
    assert isinstance(model, StoredModel)
    jobs.leave(job)
    time.sleep(0.2)  # more than the end of the fetch would need
    assert Store(cache).is_in_use(model.folder)
    jobs.leave(job)
    wait_for(lambda: not Store(cache).is_in_use(model.folder))
