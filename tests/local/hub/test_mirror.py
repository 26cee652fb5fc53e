"""The hub mirror of local clusters: what a fetch gets from it, and what it does not give."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.local.hub.mirror_process import mirror_process
from tests.support.sources.model_files import fetched_names, model_files

from penstock.local.chat_model import NAME, REPOSITORY
from penstock.local.record import HUB_PORT, Cluster

ENGINE = Path(sys.executable).with_name("penstock-engine")
WEIGHTS = "model.safetensors"


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of models: the chat model, two others, and what must not be served."""
    cache = tmp_path_factory.mktemp("cache")
    folder = cache / "local-models"
    write(folder / NAME, model_files())
    other = write(folder / "org" / "other", model_files(seed=1))
    write(folder / "org" / "changed", model_files(seed=2))
    outside = write(cache / "outside", {"secret": b"a secret"})
    write(cache, {"secret": b"a secret"})
    write(other, {".hidden": b"a secret", ".git/config": b"a secret"})
    (folder / "org" / "outside").symlink_to(outside)
    (other / "link").symlink_to(outside / "secret")
    (other / "folder").symlink_to(outside)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_CACHE_DIR", str(cache))
        yield folder


@pytest.fixture(scope="module")
def mirror(models: Path) -> Iterator[Cluster]:
    with mirror_process() as made:
        yield made


def fetch(mirror: Cluster, uri: str, into: Path) -> dict[str, Any]:
    """The report of a fetch, as pods of the cluster run it."""
    done = subprocess.run(
        [ENGINE, "fetch", uri, "--into", into],
        env={**os.environ, "HF_ENDPOINT": mirror.hub_url}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def get(mirror: Cluster, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{mirror.hub_url}{path}", headers=headers, trust_env=False)


@pytest.mark.parametrize(("name", "seed"), [(REPOSITORY, 0), ("org/other", 1)])
def test_a_fetch_gets_the_model(mirror: Cluster, tmp_path: Path, name: str, seed: int) -> None:
    report = fetch(mirror, f"hf://{name}", tmp_path / "into")
    assert report["resolved_uri"] == f"hf://{name}@{commit(mirror, name)}", report
    files = model_files(seed=seed)
    for each in fetched_names(files):
        assert (tmp_path / "into" / each).read_bytes() == files[each]
    again = fetch(mirror, report["resolved_uri"], tmp_path / "again")
    assert (again["downloaded_bytes"], again["resolved_uri"]) == (
        report["downloaded_bytes"],
        report["resolved_uri"],
    )


def commit(mirror: Cluster, name: str) -> str:
    return str(get(mirror, f"/api/models/{name}").json()["sha"])


def test_a_model_that_the_mirror_lacks_says_where_to_put_it(
    mirror: Cluster, models: Path, tmp_path: Path
) -> None:
    report = fetch(mirror, "hf://Qwen/Qwen3-0.6B@main", tmp_path / "into")
    assert (report["reason"], report["message"]) == (
        "RepositoryNotFound",
        f"{mirror.address} has no model Qwen/Qwen3-0.6B: this local cluster cannot reach "
        f"the Hugging Face hub, only this mirror with the models in {models}: put the model into the "
        "folder Qwen/Qwen3-0.6B there; or check the name, or set HF_TOKEN to a token that may read it",
    )


def test_a_revision_that_the_mirror_lacks_is_named(
    mirror: Cluster, models: Path, tmp_path: Path
) -> None:
    report = fetch(mirror, "hf://org/other@refs/pr/7", tmp_path / "into")
    assert (report["reason"], report["message"]) == (
        "RevisionNotFound",
        "org/other has no branch, tag or commit 'refs/pr/7': this local cluster cannot reach the Hugging "
        f"Face hub, only this mirror with one revision of each model in {models}: leave the revision out "
        "of the URI",
    )


def test_a_changed_file_is_another_commit(mirror: Cluster, models: Path) -> None:
    before = commit(mirror, "org/changed")
    assert get(mirror, f"/api/models/org/changed/revision/{before}").json()["sha"] == before
    write(models / "org" / "changed", {"config.json": b'{"model_type": "other"}'})
    after = commit(mirror, "org/changed")
    assert after != before
    assert get(mirror, f"/api/models/org/changed/revision/{before}").status_code == 404
    assert get(mirror, f"/org/changed/resolve/{before}/{WEIGHTS}").status_code == 404
    config = get(mirror, f"/org/changed/resolve/{after}/config.json").json()
    assert config == {"model_type": "other"}


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("bytes=0-9", 0, 10), ("bytes=1000-", 1000, None), ("bytes=-7", -7, None)],
)
def test_a_range_of_a_file_is_sent(
    mirror: Cluster, asked: str, start: int, end: int | None
) -> None:
    data = model_files(seed=1)[WEIGHTS]
    answer = get(mirror, f"/org/other/resolve/main/{WEIGHTS}", Range=asked)
    assert (answer.status_code, answer.content) == (206, data[start:end])
    first = start % len(data)
    last = first + len(data[start:end]) - 1
    assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{len(data)}"


def test_a_range_after_the_end_is_refused_and_a_head_has_no_body(mirror: Cluster) -> None:
    path = f"/org/other/resolve/main/{WEIGHTS}"
    assert get(mirror, path, Range="bytes=99999999-").status_code == 416
    head = httpx.head(f"{mirror.hub_url}{path}", trust_env=False)
    size = str(len(model_files(seed=1)[WEIGHTS]))
    assert (head.status_code, head.headers["Content-Length"], head.content) == (200, size, b"")
    assert head.headers["X-Repo-Commit"] == commit(mirror, "org/other")
    assert get(mirror, "/org/other/resolve/main/missing").headers["X-Error-Code"] == "EntryNotFound"


@pytest.mark.parametrize(
    "path",
    [
        "/org/other/resolve/main/../../../secret",
        "/org/other/resolve/main/%2e%2e/%2e%2e/%2e%2e/secret",
        "/org/other/resolve/main/..%2f..%2f..%2fsecret",
        "/org/other/resolve/main//etc/passwd",
        "/org/other/resolve/main/%2fetc%2fpasswd",
        "/org/other/resolve/main/link",
        "/org/other/resolve/main/folder/secret",
        "/org/other/resolve/main/.hidden",
        "/org/other/resolve/main/.git/config",
        "/org/outside/resolve/main/secret",
        "/../cache/resolve/main/secret",
        "/%2e%2e/%2e%2e/resolve/main/secret",
        "/org/..%2f../resolve/main/secret",
        "/api/models/org/outside",
        "/api/models/..%2f../x",
        f"/{NAME}/resolve/main/config.json",
        "/",
    ],
)
def test_nothing_outside_of_a_model_is_served(mirror: Cluster, path: str) -> None:
    head, _, body = raw_get(mirror, path).partition(b"\r\n\r\n")
    assert head.split()[1] in (b"400", b"404")
    assert b"a secret" not in body
    assert b"root:" not in body


def raw_get(mirror: Cluster, path: str) -> bytes:
    """The whole answer to a path that is sent unchanged. HTTP clients would normalize it."""
    with socket.create_connection((mirror.address, HUB_PORT), timeout=10) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: mirror\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(mirror: Cluster, method: str) -> None:
    url = f"{mirror.hub_url}/org/other/resolve/main/config.json"
    assert httpx.request(method, url, content=b"{}", trust_env=False).status_code == 405


def test_it_listens_at_the_address_of_its_cluster_only(mirror: Cluster) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", HUB_PORT), timeout=2)
