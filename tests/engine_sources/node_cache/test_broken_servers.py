"""Answers that no server of Penstock sends: a pod links nothing of them, and fetches its model itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import fetched_names, model_files
from tests.support.sources.node_cache import NOT_USED, fetch_as_pod, links, serve_answer
from tests.support.sources.quick_limits import QUICK

from penstock_engine.sources.node_cache import client
from penstock_engine.sources.progress import Progress

FILES = model_files()
SHA256 = "a" * 64
HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"


@pytest.fixture
def cache(hub: HubServer, tmp_path: Path) -> Path:
    """A folder with one file of a cache, of three bytes, and one elsewhere that a link there leads to."""
    hub.add("org/name", FILES)
    blobs = tmp_path / "cache" / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    (blobs / SHA256).write_bytes(b"abc")
    (tmp_path / "secret").write_bytes(b"abc")
    (blobs / ("b" * 64)).symlink_to(tmp_path / "secret")
    (blobs.parent / "version").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / SHA256).write_bytes(b"abc")
    return tmp_path / "cache"


def result(commit: str) -> dict[str, Any]:
    """A result that a pod believes."""
    file = {"name": "config.json", "size_bytes": 3, "blob": f"sha256/{SHA256}"}
    manifest = {"resolved_uri": f"hf://org/name@{commit}", "files": [file], "selection_version": 1}
    return {"manifest": manifest, "downloaded_bytes": 3, "num_cache_hits": 0}


def change(*path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    """A change of one entry of a result."""

    def apply(content: Any) -> None:
        *parents, last = path
        for key in parents:
            content = content[key]
        content[last] = to

    return apply


def line(content: object) -> bytes:
    return HEAD + json.dumps(content).encode() + b"\n"


def test_the_result_that_the_others_change_is_believed(
    cache: Path, hub: HubServer, tmp_path: Path
) -> None:
    serve_answer(cache, [line({"result": result(hub.repositories["org/name"].revisions["main"])})])
    assert fetch_as_pod("hf://org/name", tmp_path / "model", cache).num_files == 1
    assert links(tmp_path / "model") == [str(cache / "blobs" / "sha256" / SHA256)]


@pytest.mark.parametrize(
    "damage",
    [
        change("manifest", "files", 0, "name", to="../escaped"),
        change("manifest", "files", 0, "name", to="/escaped"),
        change("manifest", "files", 0, "name", to=1),
        change("manifest", "files", 0, "blob", to="../../secret"),
        change("manifest", "files", 0, "blob", to=f"sha256/{'b' * 64}"),
        change("manifest", "files", 0, "blob", to=f"version/{SHA256}"),
        change("manifest", "files", 0, "blob", to=f"sha256/{'c' * 64}"),
        change("manifest", "files", 0, "blob", to=None),
        change("manifest", "files", 0, "size_bytes", to=4),
        change("manifest", "files", 0, "size_bytes", to="3"),
        change("manifest", "files", 0, "mode", to=0o777),
        change("manifest", "files", 0, to=None),
        change("manifest", "files", to=[]),
        change("manifest", "files", to={}),
        change("manifest", "files", to=[result("")["manifest"]["files"][0]] * 2),
        change("manifest", "selection_version", to=2),
        change("manifest", "resolved_uri", to="hf://org/name@main"),
        change("manifest", "resolved_uri", to=f"hf://org/other@{'0' * 40}"),
        change("manifest", "resolved_uri", to=None),
        change("manifest", to=[]),
        change("downloaded_bytes", to=-1),
        change("num_cache_hits", to="all"),
    ],
)
def test_an_invalid_result_is_not_linked(
    cache: Path, hub: HubServer, tmp_path: Path, damage: Callable[[dict[str, Any]], None]
) -> None:
    content = result(hub.repositories["org/name"].revisions["main"])
    damage(content)
    check_falls_back(cache, tmp_path, [line({"result": content})], "an invalid answer")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "ended the connection"),
        (b"SSH-2.0\r\n", "ended the connection"),
        (b"HTTP/1.1 500 Oops\r\n\r\n", "its server answered 500"),
        (b'HTTP/1.1 400 Bad\r\n\r\n{"message": "no\\nway"}', "not used: no way"),
        (HEAD + b"{\n", "an invalid answer"),
        (HEAD + b"[" * 100_000 + b"\n", "an invalid answer"),
        (line([]), "an invalid answer"),
        (line({"progress": {}}), "an invalid answer"),
        (line({"failure": {"reason": "NoSpace", "message": "full"}}), "not used: NoSpace: full"),
        (line({"failure": None}), "an invalid answer"),
    ],
)
def test_an_answer_that_is_no_result_is_a_reason(
    cache: Path, tmp_path: Path, answer: bytes, reason: str
) -> None:
    check_falls_back(cache, tmp_path, [answer], reason)


def check_falls_back(cache: Path, tmp_path: Path, answers: list[bytes], reason: str) -> None:
    """Check that a pod fetches the model itself, and says why."""
    said: list[str] = []
    thread = serve_answer(cache, answers)
    fetch_as_pod("hf://org/name", tmp_path / "model", cache, say=said.append)
    thread.join()
    assert said[0].startswith(f"{NOT_USED} {cache} is not used: ")
    assert reason in said[0]
    weights = tmp_path / "model" / "model.safetensors"
    assert weights.read_bytes() == FILES["model.safetensors"]
    assert links(tmp_path / "model") == []
    assert not (tmp_path / "escaped").exists()


def test_a_server_that_ends_each_connection_is_given_up(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RETRY_FOR_S", 0.1)
    told = {"done_bytes": 1, "total_bytes": 9, "downloaded_bytes": 1, "bytes_per_s": 1.0}
    said: list[str] = []
    progress = Progress(said.append)
    serve_answer(cache, [line({"progress": told})] * 9)
    client.fetch_with_node_cache("hf://org/name", tmp_path / "model", cache, QUICK, progress)
    assert [each for each in said if "cache of the node" in each] == [
        "The cache of the node is asked again: its server ended the connection",
        f"{NOT_USED} {cache} is not used: its server ended the connection",
    ]
    assert links(tmp_path / "model") == []
    num_bytes = sum(len(FILES[name]) for name in fetched_names(FILES))
    assert progress.state().done_bytes == num_bytes, "of the own fetch, no longer of the server"
