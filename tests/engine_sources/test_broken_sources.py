"""Broken sources: each ends with a reason of its own and a sentence that says what to change."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine_sources.conftest import Fetch
from tests.support.sources.broken_sources import NAME, SOURCES, Broken
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import model_files
from tests.support.sources.quick_limits import QUICK

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.storage.model_folder import read_manifest


@pytest.mark.parametrize("broken", SOURCES.values(), ids=SOURCES.keys())
def test_a_broken_source_has_a_reason_and_a_sentence(
    hub: HubServer, fetch: Fetch, tmp_path: Path, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(NAME, broken.files(), **broken.repository)
    hub.faults.add(*(make(hub) for make in broken.faults))
    if broken.token:
        monkeypatch.setenv("HF_TOKEN", broken.token)
    if broken.endpoint:
        monkeypatch.setenv("HF_ENDPOINT", broken.endpoint)
    with pytest.raises(FetchError) as refused:
        fetch(broken.uri, limits=broken.limits)
    error = refused.value
    assert error.reason == broken.reason, error
    assert broken.sentence in error.message
    assert error.is_retryable == broken.is_retryable
    assert "secret" not in error.message.replace("put secrets into", "")
    check_nothing_is_left(tmp_path)
    threads = [thread.name for thread in threading.enumerate()]
    assert [name for name in threads if name.startswith(("fetch", "lease", "progress"))] == []


def check_nothing_is_left(tmp_path: Path) -> None:
    """A failed fetch leaves no model, no lease, and nothing outside of its folders."""
    assert read_manifest(tmp_path / "model") is None
    assert {path.name for path in tmp_path.iterdir()} <= {"model", "cache"}
    cache = tmp_path / "cache"
    assert [path for path in cache.glob("locks/*") if path.is_file()] == []
    assert [path for path in cache.glob("uses/*/*") if path.is_file()] == []
    assert not list(cache.glob("models/*/*/.penstock-model.json"))


@contextmanager
def small_volume(folder: Path, size: str) -> Iterator[Path]:
    """A file system of a fixed size."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
def test_a_volume_that_fills_up_meanwhile_is_a_reason(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    hub.add(NAME, model_files(3_000_000))
    with small_volume(tmp_path / "small", "2m"):
        with pytest.raises(FetchError, match="GiB more"):
            fetch(f"hf://{NAME}", into="small/model", cache=None)
        # The check passes, as if another process wrote to the volume after it.
        with pytest.raises(FetchError, match="NoSpace: the volume is full"):
            fetch(
                f"hf://{NAME}",
                into="small/model",
                cache=None,
                limits=replace(QUICK, spare_bytes=-(1 << 30)),
            )
        assert read_manifest(tmp_path / "small/model") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
def test_a_folder_that_is_mounted_read_only_is_a_reason(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    hub.add(NAME, model_files())
    with small_volume(tmp_path / "small", "2m") as folder:
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        with pytest.raises(FetchError, match="NotWritable"):
            fetch(f"hf://{NAME}", into="small/model", cache=None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
def test_a_cache_on_another_volume_is_linked_to(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    files = model_files()
    hub.add(NAME, files)
    with small_volume(tmp_path / "small", "2m") as folder:
        fetch(f"hf://{NAME}", cache="small")
        weights = tmp_path / "model/model.safetensors"
        assert weights.is_symlink()
        assert weights.resolve().is_relative_to(folder)
        assert weights.read_bytes() == files["model.safetensors"]
