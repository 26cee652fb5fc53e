"""`penstock-engine hold`: a model that an engine serves is not evicted from the cache."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine_sources.conftest import Fetch
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import model_files
from tests.support.sources.quick_limits import QUICK

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.storage import hold as module
from penstock_engine.sources.storage.hold import HoldError, hold
from penstock_engine.sources.storage.lease import EXPIRY_S
from penstock_engine.sources.storage.model_folder import MARKER_NAME

ENGINE = Path(sys.executable).parent / "penstock-engine"
LOOK_S = 0.02
LIMITS = replace(QUICK, cache_bytes=300_000)  # room for one model of 200 kB


@pytest.fixture
def cached(hub: HubServer, fetch: Fetch, tmp_path: Path) -> Path:
    """A cache with a model, which the folder `model` beside it has. The hub has another model."""
    hub.add("org/name", model_files())
    hub.add("org/other", model_files(seed=1))
    fetch("hf://org/name")
    return tmp_path / "cache"


def leases(cache: Path) -> list[Path]:
    return [*cache.glob("uses/*/[!.]*")]


def wait_for(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def start(*args: str | Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([ENGINE, "hold", *args], stderr=subprocess.PIPE, text=True)


@contextmanager
def holding(cache: Path) -> Iterator[list[BaseException]]:
    """Hold the model in a thread, with frequent looks. Yields the errors that end it."""
    errors: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            hold([cache.with_name("model")], cache, ended, LOOK_S)
        except HoldError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: leases(cache))
    try:
        yield errors
    finally:
        ended.set()
        thread.join()


def test_a_held_model_is_not_evicted_until_the_holder_ends(cached: Path, fetch: Fetch) -> None:
    process = start(cached.with_name("model"), "--cache", cached)
    wait_for(lambda: leases(cached))
    with pytest.raises(FetchError, match="CacheLimit"):
        fetch("hf://org/other", into="other", limits=LIMITS)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60) == (None, "")
    assert process.returncode == 0
    assert leases(cached) == []
    fetch("hf://org/other", into="other", limits=LIMITS)
    assert len([*cached.glob("models/*/*")]) == 1


def test_a_holder_that_died_may_be_started_again(cached: Path, fetch: Fetch) -> None:
    process = start(cached.with_name("model"), "--cache", cached)
    wait_for(lambda: leases(cached))
    process.kill()
    process.communicate(timeout=60)
    with pytest.raises(FetchError, match="CacheLimit"):
        fetch("hf://org/other", into="other", limits=LIMITS)
    (lease,) = leases(cached)
    expired_s = time.time() - EXPIRY_S - 1
    os.utime(lease, (expired_s, expired_s))
    fetch("hf://org/other", into="other", limits=LIMITS)


def test_a_lease_that_was_removed_is_taken_anew(cached: Path) -> None:
    with holding(cached) as errors:
        (lease,) = leases(cached)
        lease.unlink()
        wait_for(lambda: leases(cached))
        assert leases(cached) != [lease]
    assert errors == []
    assert leases(cached) == []


def test_the_end_of_a_model_is_said_and_does_not_end_the_pod(
    cached: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The engine has read it already. A network file system may also fail for a moment."""
    weights = cached.with_name("model") / "model.safetensors"
    with holding(cached) as errors:
        weights.rename(weights.with_name("away"))
        wait_for(lambda: "has no longer its model" in capfd.readouterr().err)
        weights.with_name("away").rename(weights)
        wait_for(lambda: "has its model again" in capfd.readouterr().err)
        assert leases(cached)
    assert errors == []
    assert leases(cached) == []


def test_a_fetched_model_stays_until_what_holds_it_begins(cached: Path, fetch: Fetch) -> None:
    """Between both, another fetch may need the room."""
    limits = replace(LIMITS, hold_s=600)
    fetch("hf://org/name", limits=limits)
    with pytest.raises(FetchError, match="CacheLimit"):
        fetch("hf://org/other", into="other", limits=LIMITS)
    (lease,) = leases(cached)
    expired_s = time.time() - 601
    os.utime(lease, (expired_s, expired_s))
    fetch("hf://org/other", into="other", limits=LIMITS)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: (folder / MARKER_NAME).unlink(), "has no whole model: fetch it"),
        (lambda folder: os.truncate(folder / "config.json", 1), "has no whole model: fetch it"),
    ],
    ids=["no marker", "short file"],
)
def test_what_is_no_whole_model_is_a_sentence(
    cached: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    folder = cached.with_name("model")
    damage(folder)
    process = start(folder, "--cache", cached)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, sentence in errors) == (1, True), errors


def test_a_cache_that_is_not_there_is_a_sentence(
    cached: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert module.main([str(cached / "none"), str(cached.with_name("model"))]) == 1
    assert "there is no cache at" in capsys.readouterr().err


def test_it_imports_little() -> None:
    code = (
        "import sys; import penstock_engine.sources.storage.hold; "
        "print([m for m in ('typer', 'httpx2', 'numpy', 'asyncio', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
