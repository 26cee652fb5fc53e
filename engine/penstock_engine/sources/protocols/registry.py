"""Models of OCI registries: artifacts whose layers are files, and images with files in their layers.

It has the four routes that a fetch needs. A client library of registries would add its dependencies for
uploads and signatures to the image.
"""

import hashlib
import json
import platform
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from penstock_engine.contract.model_source import ModelSource
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.listing import Digest, Listing, SourceFile
from penstock_engine.sources.protocols.http_client import HttpClient
from penstock_engine.sources.protocols.registry_auth import FOLDER, authorization, is_loopback

TITLE = "org.opencontainers.image.title"
MODEL_FILE = "org.cncf.model.filepath"  # of artifacts by the ModelPack specification
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LATEST = "latest"


class Registry:
    """A repository of a registry."""

    def __init__(self, source: ModelSource, limits: FetchLimits) -> None:
        self._source, self._limits = source, limits
        self._client = HttpClient(limits, FOLDER)
        scheme = "http" if is_loopback(urlsplit(f"//{source.host}").hostname or "") else "https"
        self._url = f"{scheme}://{source.host}/v2/{source.name}"
        self._authorization: str | None = None
        self._lock = threading.Lock()

    def resolve(self) -> Listing:
        """List the layers of the manifest that the tag means now. Raises FetchError."""
        reference = self._source.digest or self._source.revision or LATEST
        digest, manifest = self._manifest(reference)
        resolved = replace(self._source, digest=digest)
        if manifest.get("mediaType") in INDEXES or "manifests" in manifest:
            _, manifest = self._manifest(_choose(manifest))
        try:
            layers = [_layer(each, f"{self._url}/blobs/") for each in manifest["layers"]]
        except (LookupError, TypeError, ValueError) as error:
            raise self._not_a_manifest() from error
        if not self._has_ranges([file for file, _ in layers]):
            layers = [(replace(file, has_ranges=False), is_archive) for file, is_archive in layers]
        files = tuple(file for file, is_archive in layers if not is_archive)
        # A file in a later layer of an image replaces the same file of earlier ones.
        archives = tuple(file for file, is_archive in layers if is_archive)
        return Listing(resolved, files, archives)

    def _manifest(self, reference: str) -> tuple[str, dict[str, Any]]:
        """A manifest or index by its tag or digest, with its digest. Raises FetchError."""
        url = f"{self._url}/manifests/{reference}"
        body = self._text(url, {"Accept": ", ".join((*MANIFESTS, *INDEXES))})
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if reference.startswith("sha256:") and digest != reference:
            raise FetchError(
                "WrongDigest",
                f"{self._source.host} sent another manifest than that of the digest: use another mirror",
            )
        try:
            manifest = json.loads(body)
        except ValueError as error:
            raise self._not_a_manifest() from error
        if not isinstance(manifest, dict):
            raise self._not_a_manifest()
        return digest, manifest

    def _has_ranges(self, files: list[SourceFile]) -> bool:
        """Whether parts of layers can be read, which registries need not offer. Raises FetchError."""
        largest = max(files, key=lambda file: file.size_bytes, default=None)
        if largest is None or largest.size_bytes <= self._limits.part_bytes:
            return True  # all are read at once
        headers = self._headers({"Range": "bytes=0-0"})
        with self._client.get(largest.location, headers, (200, 206)) as response:
            return bool(response.status_code == 206)

    def _not_a_manifest(self) -> FetchError:
        return FetchError(
            "UnexpectedAnswer",
            f"{self._source.host} sent no manifest of an image: check that it is a registry",
        )

    def _text(self, url: str, headers: Mapping[str, str]) -> bytes:
        """The body of a small answer, with the credentials that the registry asks for. Raises FetchError."""
        if self._authorization is None:
            self._authorization = self._authorize(url)
        body, _ = self._client.text(url, self._headers(headers))
        return body

    def _authorize(self, url: str) -> str | None:
        """The header that a request needs; None: it needs none. Raises FetchError."""
        with self._client.get(url, {"Accept": "*/*"}, (200, 401), "HEAD") as response:
            challenge = response.headers.get("www-authenticate", "")
        if response.status_code == 200:
            return None
        return authorization(self._client, self._source.host, challenge)

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        own = {"Authorization": self._authorization} if self._authorization else {}
        return {**headers, **own}

    @contextmanager
    def read(self, file: SourceFile, start: int, end: int) -> Iterator[Iterator[bytes]]:
        """Open a range of a layer. Raises FetchError."""
        used = self._authorization
        try:
            with self._client.range(file, self._headers({}), start, end) as chunks:
                yield chunks
        except FetchError as error:
            if error.reason == "Unauthorized" and used is not None:
                # Tokens last for minutes only: the next attempt has a new one.
                self._renew(used, file.location)
                error.is_retryable = True
            raise

    def _renew(self, used: str, url: str) -> None:
        """Ask for a new token, unless another thread has done so. Raises FetchError."""
        with self._lock:
            if self._authorization == used:
                self._authorization = self._authorize(url)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _choose(index: Mapping[str, Any]) -> str:
    """The digest of the manifest for this machine, or of the first one. Raises FetchError."""
    machine = ARCHITECTURES.get(platform.machine(), platform.machine())
    try:
        manifests = [each for each in index["manifests"] if each["mediaType"] in MANIFESTS]
        own = [
            each for each in manifests if each.get("platform", {}).get("architecture") == machine
        ]
        return str((own or manifests)[0]["digest"])
    except (LookupError, TypeError, AttributeError) as error:
        raise FetchError("EmptySource", "the index names no image: push the model again") from error


def _layer(layer: Mapping[str, Any], url: str) -> tuple[SourceFile, bool]:
    """A layer as a file, and whether it is an archive. Raises LookupError, TypeError, ValueError."""
    algorithm, _, hexadecimal = str(layer["digest"]).partition(":")
    if algorithm != "sha256" or not re.fullmatch("[0-9a-f]{64}", hexadecimal):
        raise ValueError("a digest of another algorithm, or none")
    annotations = layer.get("annotations") or {}
    media_type = str(layer.get("mediaType", ""))
    name = annotations.get(MODEL_FILE) or annotations.get(TITLE)
    is_archive = name is None or media_type.endswith((".tar", ".tar+gzip", ".tar.gzip"))
    file = SourceFile(
        name=str(name or hexadecimal),
        size_bytes=int(layer["size"]),
        blob=f"sha256/{hexadecimal}",
        digest=Digest("sha256", hexadecimal),
        location=f"{url}sha256:{hexadecimal}",
    )
    return file, is_archive
