"""The server of a node's cache as a process: restarts, rights of files, and a mount that is read-only."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import model_files
from tests.support.sources.node_cache import (
    ENGINE,
    NOT_USED,
    fetch_as_pod,
    links,
    node_cache_process,
    wait_for,
)
from tests.support.sources.quick_limits import QUICK

from penstock_engine.contract.node_cache import SOCKET_NAME
from penstock_engine.sources.node_cache import client

FILES = model_files(1_000_000)
POD_USER = 65532


@pytest.fixture
def cache(hub: HubServer, tmp_path: Path) -> Path:
    """The folder of a cache. The hub has a model, the weights of which take seconds."""
    hub.add("org/name", FILES)
    hub.cdn.delay_s = 0.3  # of each block of 64 KiB
    return tmp_path / "cache"


def test_a_server_that_dies_and_starts_again_goes_on(
    cache: Path, hub: HubServer, tmp_path: Path
) -> None:
    said: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        with node_cache_process(cache, "--connections", "1") as process:
            job = pool.submit(
                fetch_as_pod, "hf://org/name", tmp_path / "model", cache, say=said.append
            )
            wait_for(lambda: [*cache.glob("partial/*.parts")])
            process.kill()
        wait_for(lambda: said)
        hub.cdn.delay_s = 0.0
        with node_cache_process(cache):
            job.result()
    assert said == ["The cache of the node is asked again: its server ended the connection"]
    assert len(links(tmp_path / "model")) == 3
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_a_pod_fetches_itself_when_the_server_stays_away(
    cache: Path, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RETRY_FOR_S", 1.0)
    said: list[str] = []
    with ThreadPoolExecutor(1) as pool, node_cache_process(cache) as process:
        job = pool.submit(fetch_as_pod, "hf://org/name", tmp_path / "model", cache, say=said.append)
        wait_for(lambda: [*cache.glob("partial/*.parts")])
        process.kill()
        process.wait()
        hub.cdn.delay_s = 0.0
        job.result()
    assert said[-2].startswith(f"{NOT_USED} {cache} is not used: "), said
    assert links(tmp_path / "model") == []
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_at_sigterm_the_socket_goes_and_what_was_held_stays(
    cache: Path, hub: HubServer, tmp_path: Path
) -> None:
    hub.cdn.delay_s = 0.0
    with node_cache_process(cache) as process:
        fetch_as_pod("hf://org/name", tmp_path / "model", cache, replace(QUICK, hold_s=600))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not (cache / SOCKET_NAME).exists()
        assert [*cache.glob("uses/*/*")]


def test_a_folder_has_one_server(cache: Path, tmp_path: Path) -> None:
    with node_cache_process(cache):
        second = subprocess.run(
            [ENGINE, "node-cache", "--cache", cache, "--allow", "hf://org"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert second.returncode == 1
        assert second.stderr == (
            f"penstock-engine node-cache: another server uses {cache}: stop it, or name another folder\n"
        )
        assert (cache / SOCKET_NAME).exists()


def test_pods_can_read_models_and_lock_nothing(cache: Path, hub: HubServer, tmp_path: Path) -> None:
    """A lock needs no right to write. A locked lease would keep files from being fetched."""
    hub.cdn.delay_s = 0.0
    with node_cache_process(cache, umask=0o077):
        fetch_as_pod("hf://org/name", tmp_path / "model", cache, replace(QUICK, hold_s=600))
        modes = {
            str(path.relative_to(cache)): stat.S_IMODE(path.stat().st_mode)
            for path in [cache, *cache.glob("*")]
        }
    assert modes == {
        ".": 0o755, "blobs": 0o755, "models": 0o755, SOCKET_NAME: 0o666, ".node-cache.lock": 0o600,
        "locks": 0o700, "uses": 0o700, "partial": 0o700, "revisions": 0o700,
    }  # fmt: skip
    inner = {stat.S_IMODE(p.stat().st_mode) for p in cache.glob("blobs/*")}
    blobs = {stat.S_IMODE(p.stat().st_mode) for p in cache.glob("blobs/*/*")}
    assert (inner, blobs) == ({0o755}, {0o644})


def test_a_pod_of_another_user_fetches_through_a_read_only_mount(
    cache: Path, hub: HubServer, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a mount needs root and unshare")
    hub.cdn.delay_s = 0.0
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and stat.S_IMODE(folder.stat().st_mode) & 0o1 == 0:
            folder.chmod(0o711)
    mount, model = tmp_path / "mount", tmp_path / "model"
    mount.mkdir()
    model.mkdir()
    os.chown(model, POD_USER, POD_USER)
    as_pod = f"setpriv --reuid {POD_USER} --regid {POD_USER} --clear-groups"
    script = (
        f"mount --bind {cache} {mount} && mount -o remount,ro,bind {mount} || exit 99; "
        f"touch {mount}/x 2>/dev/null && exit 98; "
        f"{as_pod} {sys.executable} -c 'import penstock_engine' || exit 97; "
        f"exec {as_pod} {ENGINE} fetch hf://org/name --into {model} --node-cache {mount}"
    )
    with node_cache_process(cache):
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False
        )
    if done.returncode in (97, 99) or done.stderr.startswith("unshare:"):
        pytest.skip(f"no mounts, or no interpreter for other users: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["downloaded_bytes"] > 0
    assert NOT_USED not in done.stderr
    assert all(link.startswith(f"{mount}/blobs/") for link in links(model))


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["node-cache", "--cache", "c", "--allow", "hf://a/b@main"], "--allow: 'hf://a/b@main' has to be"),
        (["fetch", "hf://a/b", "--into", "m", "--cache", "c", "--node-cache", "n"], "cannot be given"),
        (["hold", "m"], "one of --cache and --node-cache is needed"),
        (["hold", "m", "--cache", "c", "--node-cache", "n"], "one of --cache and --node-cache is needed"),
    ],
)  # fmt: skip
def test_flags_that_cannot_be_are_sentences(
    flags: list[str], sentence: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [ENGINE, *flags], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
    assert [*tmp_path.iterdir()] == []


def test_bad_credentials_are_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "HF_TOKEN").write_text("a\nb")
    with node_cache_process(tmp_path / "cache", "--credentials", str(folder)) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.startswith("penstock-engine node-cache: BadCredentials: the value of HF_TOKEN has")
