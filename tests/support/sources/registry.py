"""A registry of images on the loopback interface, and models in it."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
from tests.support.sources.server_process import server_process
from tests.support.tools.image_registry import ensure_registry

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
TITLE = "org.opencontainers.image.title"


@contextmanager
def registry_server() -> Iterator[str]:
    """Start an empty registry. Yields HOST:PORT."""
    binary = ensure_registry(lambda _: None)
    with server_process(lambda port: ["env", f"PORT={port}", binary, "-port", str(port)]) as port:
        yield f"127.0.0.1:{port}"


def push_artifact(host: str, name: str, tag: str, files: Mapping[str, bytes]) -> str:
    """Push files as layers with titles. Returns the manifest's digest."""
    layers = [
        _push_blob(host, name, data)
        | {"mediaType": "application/octet-stream", "annotations": {TITLE: title}}
        for title, data in files.items()
    ]
    return push_manifest(host, name, tag, layers)


def push_image(host: str, name: str, tag: str, *layers: bytes) -> str:
    """Push tar archives as the layers of an image. Returns the manifest's digest."""
    kind = "application/vnd.oci.image.layer.v1.tar+gzip"
    return push_manifest(
        host, name, tag, [_push_blob(host, name, layer) | {"mediaType": kind} for layer in layers]
    )


def push_manifest(host: str, name: str, tag: str, layers: list[dict[str, Any]]) -> str:
    config = _push_blob(host, name, b"{}") | {"mediaType": "application/vnd.oci.empty.v1+json"}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
    return put(host, name, tag, manifest)


def put(host: str, name: str, tag: str, manifest: dict[str, Any]) -> str:
    """Put a manifest or an index. Returns its digest."""
    body = json.dumps(manifest).encode()
    url = f"http://{host}/v2/{name}/manifests/{tag}"
    httpx2.put(
        url, content=body, headers={"Content-Type": manifest["mediaType"]}
    ).raise_for_status()
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _push_blob(host: str, name: str, data: bytes) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    started = httpx2.post(f"http://{host}/v2/{name}/blobs/uploads/")
    started.raise_for_status()
    place = httpx2.URL(f"http://{host}/").join(started.headers["Location"])
    httpx2.put(place.copy_merge_params({"digest": digest}), content=data).raise_for_status()
    return {"digest": digest, "size": len(data)}


def tar_of(
    files: Mapping[str, bytes], links: Mapping[str, str] | None = None, *, compress: bool = True
) -> bytes:
    """A tar archive of files, and of symbolic links to their targets."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return gzip.compress(out.getvalue(), 1) if compress else out.getvalue()
