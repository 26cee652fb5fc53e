"""`penstock-engine hold --node-cache`: models that engines serve stay, also when the server starts again."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import model_files
from tests.support.sources.node_cache import ENGINE, fetch_as_pod, links, node_cache, wait_for
from tests.support.sources.quick_limits import QUICK

from penstock_engine.sources.node_cache import client, hold
from penstock_engine.sources.node_cache.connection import request
from penstock_engine.sources.node_cache.hold import keep_held
from penstock_engine.sources.node_cache.routes import HOLD_PATH
from penstock_engine.sources.storage.lease import BOOT_ID, is_held
from penstock_engine.sources.storage.model_folder import read_manifest

LIMITS = replace(QUICK, cache_bytes=300_000)  # room for one model of 200 kB
# A lease that a connection holds has a name of hexadecimal digits; `left` is one for a time.
HELD, LEFT = "uses/*/[0-9a-f]*", "uses/*/left"


@pytest.fixture
def cache(hub: HubServer, tmp_path: Path) -> Path:
    """The folder of a cache. The hub has two models, one of which fits."""
    hub.add("org/name", model_files())
    hub.add("org/other", model_files(seed=1))
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "model"


@contextmanager
def holder(model: Path, cache: Path) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [ENGINE, "hold", model, "--node-cache", cache], stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def fetch(model: Path, cache: Path) -> str:
    """Fetch the first model. Returns its resolved URI, once nothing holds it."""
    uri = fetch_as_pod("hf://org/name", model, cache).resolved_uri
    wait_for(lambda: not [*cache.glob(HELD)])
    return uri


def fits(cache: Path, tmp_path: Path) -> bool:
    """Whether the other model gets room in the cache. If not, the pod fetches it itself."""
    folder = tmp_path / "other"
    fetch_as_pod("hf://org/other", folder, cache)
    return links(folder) != []


def test_a_model_stays_until_its_holder_is_killed(cache: Path, model: Path, tmp_path: Path) -> None:
    with node_cache(cache, limits=LIMITS):
        uri = fetch(model, cache)
        with holder(model, cache):
            wait_for(lambda: [*cache.glob(HELD)])
            with request(cache, HOLD_PATH, {"resolved_uri": uri}) as answer:
                assert answer.readline() == b'{"held": true}\n'
            assert not fits(cache, tmp_path)
            assert len([*cache.glob(HELD)]) == 1, "one lease for a model"
        wait_for(lambda: not [*cache.glob(HELD)])
        assert fits(cache, tmp_path)
    assert read_manifest(model) is None


def test_a_model_stays_while_the_server_starts_again(
    cache: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "RETRY_S", 0.05)
    ended = threading.Event()
    with node_cache(cache, limits=LIMITS):
        uri = fetch(model, cache)
        thread = threading.Thread(target=keep_held, args=(uri, cache, ended), daemon=True)
        thread.start()
        wait_for(lambda: [*cache.glob(HELD)])
    wait_for(lambda: not [*cache.glob(HELD)])
    leave_as_after_a_crash(cache)
    with node_cache(cache, limits=LIMITS):
        # A lease beside the one that the crash has left
        wait_for(lambda: any(is_held(lease) for lease in cache.glob(HELD)))
        for lease in cache.glob(LEFT):
            lease.unlink()
        assert not fits(cache, tmp_path)
        ended.set()


def test_right_after_a_start_no_model_is_evicted_that_was_held(
    cache: Path, model: Path, tmp_path: Path
) -> None:
    """Its holder has not connected yet."""
    with node_cache(cache, limits=LIMITS):
        fetch(model, cache)
    leave_as_after_a_crash(cache)
    with node_cache(cache, limits=LIMITS):
        assert not fits(cache, tmp_path)
        (lease,) = cache.glob(LEFT)
        expired_s = time.time() - 61
        os.utime(lease, (expired_s, expired_s))
        assert fits(cache, tmp_path)


def leave_as_after_a_crash(cache: Path) -> None:
    """Leave a lease of a process that is gone, as a server leaves them when it is killed."""
    (uses,) = cache.glob("uses/*")
    content = {"token": "gone", "boot_id": BOOT_ID.read_text().strip(), "pid": 1}
    (uses / "0123456789abcdef").write_text(json.dumps(content))


def test_a_holder_outlives_the_server_and_says_so_once(
    cache: Path, model: Path, tmp_path: Path
) -> None:
    with node_cache(cache):
        fetch(model, cache)
    with holder(model, cache) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "hf://org/name@" in line
        assert "there is no node-cache.sock" in line
        with node_cache(cache):
            wait_for(lambda: [*cache.glob(HELD)])
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60) == (None, "")
        assert process.returncode == 0


def test_a_model_of_the_pods_own_needs_no_hold(
    cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RETRY_FOR_S", 0.1)
    fetch_as_pod("hf://org/name", model, cache)
    assert hold.held_models([model], cache) == []


def test_a_model_that_was_evicted_is_said_and_held_once_it_is_there(
    cache: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(hold, "RETRY_S", 0.05)
    monkeypatch.setattr(hold, "STABLE_S", -1.0)
    ended = threading.Event()
    with node_cache(cache, limits=LIMITS):
        uri = fetch(model, cache)
        assert fits(cache, tmp_path)
        wait_for(lambda: not [*cache.glob(HELD)])  # so that the other model may be evicted
        thread = threading.Thread(target=keep_held, args=(uri, cache, ended), daemon=True)
        thread.start()
        said = ""
        while "the cache has no such model" not in said:
            said += capfd.readouterr().err
        fetch_as_pod("hf://org/name", model, cache)
        while f"{uri} is held again" not in said:
            said += capfd.readouterr().err
        assert said.count("the cache has no such model") == 1
        assert [*cache.glob(HELD)]
        ended.set()


def test_a_folder_without_a_model_is_a_sentence(cache: Path, model: Path) -> None:
    with holder(model, cache) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said == (
        f"penstock-engine hold: {model} has no whole model: fetch it into this folder again\n"
    )


def test_it_imports_little() -> None:
    absent = ("typer", "httpx2", "numpy", "asyncio", "pydantic", "ssl", "http.client")
    code = (
        "import sys; import penstock_engine.sources.node_cache.hold; "
        f"print([m for m in {absent} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
