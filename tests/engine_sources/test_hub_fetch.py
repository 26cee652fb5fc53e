"""Fetches from a server of the hub's routes."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine_sources.conftest import Fetch
from tests.support.sources.faults import Fault
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import fetched_names, model_files, safetensors, sharded_files
from tests.support.sources.quick_limits import QUICK

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.storage.lease import try_acquire
from penstock_engine.sources.storage.model_folder import MARKER_NAME, read_manifest


def content(folder: Path) -> dict[str, bytes]:
    """Files of a folder with a model, without its marker and its store."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not str(path.relative_to(folder)).startswith(".penstock")
    }


@pytest.mark.parametrize("cache", ["cache", None])
def test_a_fetched_folder_has_what_a_runtime_reads(
    hub: HubServer, fetch: Fetch, tmp_path: Path, cache: str | None
) -> None:
    files = model_files()
    hub.add("org/name", files)
    result = fetch("hf://org/name", cache=cache)
    assert content(tmp_path / "model") == {name: files[name] for name in fetched_names(files)}
    commit = hub.repositories["org/name"].revisions["main"]
    assert result.resolved_uri == f"hf://org/name@{commit}"
    assert (
        result.total_bytes
        == result.downloaded_bytes
        == sum(map(len, content(tmp_path / "model").values()))
    )
    assert (result.num_files, result.num_cache_hits) == (3, 0)


def test_a_second_fetch_takes_nothing_and_a_known_commit_asks_nothing(
    hub: HubServer, fetch: Fetch
) -> None:
    hub.add("org/name", model_files())
    resolved = fetch("hf://org/name").resolved_uri
    hub.requests.clear()
    again = fetch("hf://org/name", into="other")
    assert (again.downloaded_bytes, again.num_cache_hits) == (0, 3)
    assert hub.paths("resolve") == []
    hub.requests.clear()
    assert fetch(resolved, into="third").downloaded_bytes == 0
    assert hub.requests == []


def test_revisions_that_share_files_fetch_the_difference(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    files = sharded_files(3)
    repository = hub.add("org/name", files)
    fetch("hf://org/name")
    changed = files | {"model-00002-of-00003.safetensors": safetensors(40_000, seed=9)}
    repository.commit(changed)
    result = fetch("hf://org/name")
    assert result.downloaded_bytes == len(changed["model-00002-of-00003.safetensors"])
    assert content(tmp_path / "model") == changed


def test_a_folder_gets_another_model_without_files_of_the_first(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    hub.add("org/sharded", sharded_files(2))
    files = model_files()
    hub.add("org/single", files)
    fetch("hf://org/sharded")
    fetch("hf://org/single")
    assert content(tmp_path / "model") == {name: files[name] for name in fetched_names(files)}


def test_folder_tag_and_gguf_file_of_a_uri(hub: HubServer, fetch: Fetch, tmp_path: Path) -> None:
    inner = sharded_files(2)
    quantized = {"Q4.gguf": b"GGUF" + b"4" * 5000, "Q8.gguf": b"GGUF" + b"8" * 5000}
    repository = hub.add("org/name", {f"sub/{name}": data for name, data in inner.items()})
    repository.commit(quantized, revision="refs/pr/1")
    fetch("hf://org/name/sub")
    assert content(tmp_path / "model") == inner
    fetch("hf://org/name@refs/pr/1/Q8.gguf")
    assert content(tmp_path / "model") == {"Q8.gguf": quantized["Q8.gguf"]}


def test_the_token_goes_to_the_hub_only_and_is_never_shown(
    hub: HubServer, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/private", model_files(), token="hf_right")
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    fetch("hf://org/private")
    sent = [
        headers.get("Authorization", "") for _, path, headers in hub.requests if "resolve" in path
    ]
    assert set(sent) == {"Bearer hf_right"}
    assert hub.cdn.requests
    assert all("Authorization" not in headers for _, _, headers in hub.cdn.requests)
    hub.faults.add(Fault("status", "/resolve/", status=403))
    with pytest.raises(FetchError) as refused:
        fetch("hf://org/private", cache="other")
    assert "hf_right" not in str(refused.value)


def test_a_token_may_be_in_a_file(
    hub: HubServer, fetch: Fetch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.add("org/private", model_files(), token="hf_right")
    (tmp_path / "token").write_text("hf_right\n")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    assert fetch("hf://org/private").num_files == 3


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", "/resolve/", times=2, status=503),
        Fault("status", "/resolve/", times=2, status=429, headers={"Retry-After": "0"}),
        Fault("status", "/api/models/org", times=2, status=500),
        Fault("truncate", "signature", times=2),
        Fault("drop", "/resolve/", times=2),
        Fault("hang", "signature", times=1),
        Fault("hang_in_body", "signature", times=1),
        Fault("trickle", "signature", times=1),
        Fault("corrupt", "signature", times=1),
    ],
    ids=lambda fault: f"{fault.kind} {fault.path}",
)
def test_what_passes_is_waited_for(
    hub: HubServer, fetch: Fetch, tmp_path: Path, fault: Fault
) -> None:
    files = model_files()
    hub.add("org/name", files)
    hub.faults.add(fault)
    fetch("hf://org/name")
    assert content(tmp_path / "model") == {name: files[name] for name in fetched_names(files)}


def test_an_interrupted_fetch_goes_on_where_it_ended(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    files = model_files(10 * QUICK.part_bytes)
    hub.add("org/name", files)
    limits = replace(QUICK, num_connections=1)
    # The small files and four parts arrive, then nothing more does.
    hub.cdn.fail_after = 4
    with pytest.raises(FetchError, match="ServerError"):
        fetch("hf://org/name", limits=limits)
    assert read_manifest(tmp_path / "model") is None
    hub.cdn.fail_after = None
    result = fetch("hf://org/name", limits=limits)
    assert result.downloaded_bytes == len(files["model.safetensors"]) - 4 * QUICK.part_bytes
    assert content(tmp_path / "model")["model.safetensors"] == files["model.safetensors"]


def test_a_mirror_without_ranges_serves_small_models(hub: HubServer, fetch: Fetch) -> None:
    hub.add("org/name", model_files(1000))
    hub.faults.add(Fault("whole", "signature"))
    assert fetch("hf://org/name").num_files == 3


def test_without_a_network_the_cache_has_the_last_revision(
    hub: HubServer, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/name", model_files())
    resolved = fetch("hf://org/name").resolved_uri
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.requests.clear()
    assert fetch("hf://org/name", into="other").resolved_uri == resolved
    with pytest.raises(FetchError, match="Offline"):
        fetch("hf://org/other")
    assert hub.requests == []


def test_the_least_used_model_makes_room_unless_it_is_in_use(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    for number in range(3):
        hub.add(f"org/m{number}", model_files(100_000, seed=number))
    limits = replace(QUICK, cache_bytes=230_000)
    folders = {}
    for number in range(2):
        fetch(f"hf://org/m{number}", into=f"model-{number}", limits=limits)
        (folders[number],) = set((tmp_path / "cache/models/hf").iterdir()) - set(folders.values())
        os.utime(folders[number] / MARKER_NAME, (number, number))
    first, second = folders[0], folders[1]
    lease = try_acquire(tmp_path / "cache/uses" / f"hf-{first.name}" / "engine")
    assert lease is not None
    with lease:
        fetch("hf://org/m2", into="model-2", limits=limits)
        assert read_manifest(first) is not None
        assert not second.exists()
    with pytest.raises(FetchError, match="CacheLimit"):
        fetch("hf://org/m1", into="model-1", limits=replace(QUICK, cache_bytes=50_000))


def test_files_of_a_cache_are_shared_by_links(hub: HubServer, fetch: Fetch, tmp_path: Path) -> None:
    hub.add("org/name", model_files())
    fetch("hf://org/name")
    status = (tmp_path / "model/model.safetensors").stat()
    assert stat.S_ISREG(status.st_mode)
    assert status.st_nlink == 3  # the blob, the model of the cache, and this folder
