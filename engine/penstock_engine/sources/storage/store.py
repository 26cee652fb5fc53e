"""The content-addressed store of fetched models, in a folder that several processes may share.

blobs/sha256/HEX          files by the digest of their content
blobs/git-sha1/HEX        the same, for small files of the hub
blobs/version/HEX         files by the version of an object, of stores without digests
partial/                  files that are being downloaded, each with a journal
models/SCHEME/…/          a folder for each revision of a model, with links to blobs and a marker
revisions/                the revision that a URI meant last, for fetches without a network
locks/, uses/             leases of files that are downloaded, and of models that are used
"""

import hashlib
import json
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from penstock_engine.contract.model_source import ModelSource, parse_model_source
from penstock_engine.sources.storage.lease import extend_lease, is_held
from penstock_engine.sources.storage.model_folder import (
    BLOB,
    MARKER_NAME,
    Manifest,
    ModelFile,
    link_files,
    read_manifest,
    write_manifest,
)
from penstock_engine.sources.weights_check import check_weights

READABLE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
MAX_READABLE = 80  # characters of a URI in the name of a folder


class Store:
    """The store in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def blob_path(self, blob: str) -> Path:
        """Place of a blob. Raises ValueError for what is no key of one."""
        if not BLOB.fullmatch(blob):
            raise ValueError(f"{blob!r} is no key of a blob")
        return self.blobs / blob

    @property
    def blobs(self) -> Path:
        """Folder of all blobs."""
        return self.root / "blobs"

    def partial_path(self, blob: str) -> Path:
        return self.root / "partial" / f"{blob.replace('/', '-')}.partial"

    def lease_path(self, blob: str) -> Path:
        """Lease of the process that downloads a blob."""
        return self.root / "locks" / blob.replace("/", "-")

    @property
    def room_lease_path(self) -> Path:
        """Lease of the process that reserves space: it evicts models, and creates partial files."""
        return self.root / "locks" / "room"

    def model_path(self, resolved: ModelSource) -> Path:
        return self.root / "models" / resolved.scheme / _folder_name(str(resolved))

    def new_use_path(self, model: Path) -> Path:
        """A new lease that keeps a model from being evicted."""
        return self._uses(model) / secrets.token_hex(8)

    def is_in_use(self, model: Path) -> bool:
        """Whether a lease of a model is held. Removes those that are not. Raises OSError."""
        in_use = False
        for lease in [*self._uses(model).glob("[!.]*")]:
            if is_held(lease):
                in_use = True
            else:
                lease.unlink(missing_ok=True)
        return in_use

    def extend_use(self, model: Path, time_s: float) -> None:
        """Keep a model from being evicted for so long at least. Raises OSError.

        Further calls extend the same lease, so that their number needs no room.
        """
        extend_lease(self._uses(model) / "left", time_s)

    def extend_uses(self, time_s: float) -> None:
        """Keep all models for so long that have leases, also of processes that are gone. Raises OSError."""
        for uses in (self.root / "uses").glob("*"):
            if any(uses.glob("[!.]*")):
                extend_lease(uses / "left", time_s)

    def forget_use(self, model: Path) -> None:
        """Remove the folder for leases of a model, if it is empty: a model that never was needs none."""
        with suppress(OSError):
            self._uses(model).rmdir()

    def has_marker(self, model: Path) -> bool:
        """Whether a model's folder is marked as whole."""
        return (model / MARKER_NAME).is_file()

    def _uses(self, model: Path) -> Path:
        return self.root / "uses" / f"{model.parent.name}-{model.name}"

    def find_model(self, resolved: ModelSource) -> Manifest | None:
        """The manifest of a whole model of the store; None if it is not there. Marks it as used now."""
        folder = self.model_path(resolved)
        manifest = read_manifest(folder)
        if manifest is not None:
            with suppress(OSError):  # a cache that is mounted read-only
                os.utime(folder / MARKER_NAME)
        return manifest

    def add_model(self, resolved: ModelSource, files: tuple[ModelFile, ...]) -> Manifest:
        """Link a model's blobs, check its weights, and mark it as whole. Raises FetchError, OSError."""
        folder = self.model_path(resolved)
        manifest = Manifest(str(resolved), files)
        link_files(folder, files, {file.name: self.blob_path(file.blob) for file in files})
        check_weights(folder)
        write_manifest(folder, manifest)
        return manifest

    def remove_model(self, model: Path) -> bool:
        """Remove a model's folder. Returns False, and leaves it, if it is used. Raises OSError."""
        if self.is_in_use(model):
            return False
        marker = model / MARKER_NAME
        removed = marker.with_name(f"{MARKER_NAME}.removed")
        with suppress(FileNotFoundError):
            os.replace(marker, removed)
        # A fetch takes its lease before it reads the marker: it is seen here, or finds no marker.
        if self.is_in_use(model):
            with suppress(FileNotFoundError):
                os.replace(removed, marker)
            return False
        shutil.rmtree(model)
        return True

    def remember_revision(self, source: ModelSource, resolved: ModelSource) -> None:
        """Note what a URI meant, for `last_revision`. Raises OSError."""
        path = self._revision_path(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{secrets.token_hex(8)}")
        temporary.write_text(json.dumps({"uri": str(source), "resolved_uri": str(resolved)}))
        os.replace(temporary, path)

    def last_revision(self, source: ModelSource) -> ModelSource | None:
        """The revision that a URI meant when it was fetched last; None if it never was."""
        try:
            content = json.loads(self._revision_path(source).read_bytes())
            return parse_model_source(content["resolved_uri"])
        except (OSError, ValueError, TypeError, LookupError):
            return None

    def _revision_path(self, source: ModelSource) -> Path:
        return self.root / "revisions" / _folder_name(str(source))


def _folder_name(uri: str) -> str:
    """The folder name of a URI: its readable characters, and a digest that makes it unique."""
    readable = "".join(each if each in READABLE else "-" for each in uri.partition("://")[2])
    return f"{readable[:MAX_READABLE]}-{hashlib.sha256(uri.encode()).hexdigest()[:16]}"
