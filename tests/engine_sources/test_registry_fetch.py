"""Fetches from a registry: artifacts, images, indexes, and the credentials that a registry asks for."""

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine_sources.conftest import Fetch
from tests.support.sources.faults import Fault
from tests.support.sources.file_server import FileServer
from tests.support.sources.model_files import fetched_names, model_files, safetensors
from tests.support.sources.quick_limits import QUICK
from tests.support.sources.registry import (
    INDEX,
    MANIFEST,
    TITLE,
    push_artifact,
    push_image,
    put,
    registry_server,
    tar_of,
)

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.headers.fetch_headers import fetch_headers


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """A real registry without credentials."""
    with registry_server() as host:
        yield host


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".penstock")
    }


def wanted(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: files[name] for name in fetched_names(files)}


@pytest.mark.slow
def test_an_artifact_has_files_as_layers(registry: str, fetch: Fetch, tmp_path: Path) -> None:
    files = model_files()
    digest = push_artifact(registry, "models/artifact", "v1", files)
    result = fetch(f"oci://{registry}/models/artifact:v1")
    assert content(tmp_path / "model") == wanted(files)
    assert result.resolved_uri == f"oci://{registry}/models/artifact:v1@{digest}"
    assert fetch(result.resolved_uri, into="other").downloaded_bytes == 0


@pytest.mark.slow
def test_headers_of_an_artifact_are_read_and_an_image_is_an_archive(
    registry: str, tmp_path: Path
) -> None:
    files, layer = model_files(), tar_of(model_files())
    push_artifact(registry, "models/headers", "v1", files)
    push_image(registry, "models/headers", "v2", layer)
    found = fetch_headers(f"oci://{registry}/models/headers:v1", tmp_path / "model", QUICK)
    assert found.total_bytes == sum(map(len, wanted(files).values()))
    assert set(content(tmp_path / "model")) == set(wanted(files))
    image = fetch_headers(f"oci://{registry}/models/headers:v2", tmp_path / "image", QUICK)
    assert (image.is_archive, image.total_bytes) == (True, len(layer))


@pytest.mark.slow
def test_a_moved_tag_fetches_the_layers_that_changed(
    registry: str, fetch: Fetch, tmp_path: Path
) -> None:
    files = model_files()
    push_artifact(registry, "models/moved", "v1", files)
    fetch(f"oci://{registry}/models/moved:v1")
    changed = files | {"config.json": b'{"model_type": "qwen2"}'}
    push_artifact(registry, "models/moved", "v1", changed)
    result = fetch(f"oci://{registry}/models/moved:v1")
    assert result.downloaded_bytes == len(changed["config.json"])
    assert content(tmp_path / "model") == wanted(changed)


@pytest.mark.slow
def test_an_image_has_files_in_its_layers_and_the_last_one_counts(
    registry: str, fetch: Fetch, tmp_path: Path
) -> None:
    files = {f"models/{name}": data for name, data in model_files().items()}
    base = tar_of({"etc/passwd": b"root", "models/config.json": b"{}"})
    digest = push_image(registry, "models/image", "latest", base, tar_of(files))
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            {"mediaType": MANIFEST, "digest": digest, "size": 1, "platform": {"architecture": "x"}}
        ],
    }
    put(registry, "models/image", "all", index)
    for tag in ("", ":all"):
        fetch(f"oci://{registry}/models/image{tag}", into=f"model{tag}", cache=f"cache{tag}")
        assert content(tmp_path / f"model{tag}") == wanted(model_files())


@pytest.mark.slow
@pytest.mark.parametrize("uri", ["oci://{}/models/none:v1", "oci://{}/models/artifact:none"])
def test_an_unknown_name_or_tag_is_a_reason(registry: str, fetch: Fetch, uri: str) -> None:
    push_artifact(registry, "models/artifact", "v1", model_files())
    with pytest.raises(FetchError, match="NotFound"):
        fetch(uri.format(registry))


class GuardedRegistry(FileServer):
    """A registry with one model, which asks for a token that only its user gets."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self.token = "token-1"
        layers = []
        for name, data in files.items():
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            layers.append(
                {
                    "mediaType": "raw",
                    "digest": digest,
                    "size": len(data),
                    "annotations": {TITLE: name},
                }
            )
            self.contents[f"/v2/models/llama/blobs/{digest}"] = data
        manifest = json.dumps(
            {"schemaVersion": 2, "mediaType": MANIFEST, "layers": layers}
        ).encode()
        self.contents["/v2/models/llama/manifests/v1"] = manifest

    def answer(self, handler: Any, path: str) -> None:
        authorization = handler.headers.get("Authorization", "")
        if path.startswith("/token"):
            user = base64.b64encode(b"me:secret").decode()
            if authorization != f"Basic {user}":
                handler.send_status(401)
            else:
                handler.send_file(json.dumps({"token": self.token}).encode(), {})
        elif authorization != f"Bearer {self.token}":
            scope = "repository:models/llama:pull"
            challenge = f'Bearer realm="{self.url}/token",service="registry",scope="{scope}"'
            handler.send_status(401, {"WWW-Authenticate": challenge})
        else:
            super().answer(handler, path)


def sign_in(folder: Path, host: str, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    auth = base64.b64encode(f"me:{password}".encode()).decode()
    folder.mkdir(exist_ok=True)
    (folder / ".dockerconfigjson").write_text(
        json.dumps({"auths": {f"https://{host}/v1/": {"auth": auth}}})
    )
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))


def test_a_registry_gets_the_token_that_it_asks_for(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = model_files()
    with GuardedRegistry(files) as server:
        host = server.url.removeprefix("http://")
        sign_in(tmp_path / "docker", host, "secret", monkeypatch)
        fetch(f"oci://{host}/models/llama:v1")
        assert content(tmp_path / "model") == wanted(files)
        (asked,) = server.paths("/token")
        assert asked == "/token?service=registry&scope=repository%3Amodels%2Fllama%3Apull"


def test_a_token_that_ends_meanwhile_is_renewed(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with GuardedRegistry(model_files(1000)) as server:
        host = server.url.removeprefix("http://")
        sign_in(tmp_path / "docker", host, "secret", monkeypatch)
        server.faults.add(Fault("status", "/blobs/", times=1, status=401))
        assert fetch(f"oci://{host}/models/llama:v1").num_files == 3
        assert len(server.paths("/token")) == 2


def test_a_registry_need_not_have_range_requests(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = model_files()
    with GuardedRegistry(files) as server:
        host = server.url.removeprefix("http://")
        sign_in(tmp_path / "docker", host, "secret", monkeypatch)
        server.faults.add(
            Fault("whole", "/blobs/", times=1),  # the request that finds it out
            Fault("truncate", "/blobs/", times=1),
            Fault("whole", "/blobs/"),
        )
        fetch(f"oci://{host}/models/llama:v1")
        assert content(tmp_path / "model") == wanted(files)


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_wrong_password_or_none_is_a_reason(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str | None
) -> None:
    with GuardedRegistry(model_files()) as server:
        host = server.url.removeprefix("http://")
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        if password:
            sign_in(tmp_path / "docker", host, password, monkeypatch)
        with pytest.raises(FetchError, match="Unauthorized") as refused:
            fetch(f"oci://{host}/models/llama:v1")
        assert "DOCKER_CONFIG" in refused.value.message


def test_a_manifest_has_to_have_the_digest_that_was_asked_for(fetch: Fetch) -> None:
    with FileServer() as server:
        host = server.url.removeprefix("http://")
        other = f"sha256:{'0' * 64}"
        server.contents[f"/v2/m/manifests/{other}"] = json.dumps({"layers": []}).encode()
        with pytest.raises(FetchError, match="WrongDigest"):
            fetch(f"oci://{host}/m@{other}")
        server.contents["/v2/m/manifests/html"] = b"<html>"
        with pytest.raises(FetchError, match="UnexpectedAnswer"):
            fetch(f"oci://{host}/m:html")


@pytest.mark.parametrize(
    "digest", ["./" * 10 + "../" * 14 + "ab", "A" * 64, "a" * 63, "../git-sha1/" + "a" * 52]
)
def test_the_digest_of_a_layer_is_no_path(fetch: Fetch, tmp_path: Path, digest: str) -> None:
    """Blobs are stored by it: a path would lead to files of others, which an eviction removes."""
    with FileServer() as server:
        layer = {"digest": f"sha256:{digest}", "size": 1, "annotations": {TITLE: "config.json"}}
        body = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "layers": [layer]}).encode()
        server.contents["/v2/m/manifests/v1"] = body
        with pytest.raises(FetchError, match="UnexpectedAnswer"):
            fetch(f"oci://{server.url.removeprefix('http://')}/m:v1")


def test_damaged_weights_of_a_registry_are_not_marked(fetch: Fetch, tmp_path: Path) -> None:
    with FileServer() as server:
        host = server.url.removeprefix("http://")
        data = safetensors(1000)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        layer = {"digest": digest, "size": len(data), "annotations": {TITLE: "model.safetensors"}}
        config = {
            "digest": f"sha256:{hashlib.sha256(b'{}').hexdigest()}", "size": 2,
            "annotations": {TITLE: "config.json"},
        }  # fmt: skip
        server.contents["/v2/m/manifests/latest"] = json.dumps({"layers": [layer, config]}).encode()
        server.contents[f"/v2/m/blobs/{digest}"] = data[:-1] + b"!"
        server.contents[f"/v2/m/blobs/{config['digest']}"] = b"{}"
        with pytest.raises(FetchError, match="WrongDigest"):
            fetch(f"oci://{host}/m")
        assert not (tmp_path / "model").exists()
