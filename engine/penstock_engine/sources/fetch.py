"""Fetches a model into a folder: resolve, select, free space, download, verify, link, mark as whole."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock_engine.contract.model_source import ModelSource
from penstock_engine.sources.archives.unpacked_model import place_unpacked, unpack_model
from penstock_engine.sources.deadline import Deadline
from penstock_engine.sources.download import Download, write_failed
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.listing import Listing, SourceFile
from penstock_engine.sources.progress import Progress
from penstock_engine.sources.protocols.opening import open_source
from penstock_engine.sources.protocols.source import Source
from penstock_engine.sources.resolution import check_pin, is_offline, parse_source
from penstock_engine.sources.selection import select
from penstock_engine.sources.storage.cleaning import make_room
from penstock_engine.sources.storage.lease import (
    POLL_S,
    Lease,
    acquire,
    leave_lease,
    try_acquire,
)
from penstock_engine.sources.storage.model_folder import (
    Manifest,
    ModelFile,
    link_files,
    read_manifest,
    write_manifest,
)
from penstock_engine.sources.storage.partial_file import PartialFile
from penstock_engine.sources.storage.store import Store

OWN_STORE = ".penstock-store"  # in the model's folder, if there is no cache
# Attempts to link all blobs of a model. A blob may be evicted before it is linked, and is then fetched again.
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class FetchResult:
    """A model that is whole in its folder."""

    resolved_uri: str
    total_bytes: int
    downloaded_bytes: int
    num_files: int
    num_cache_hits: int  # files that were in the store already
    seconds: float


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model that is whole in a store. folder: of its links there."""

    manifest: Manifest
    folder: Path
    num_cache_hits: int


def fetch_model(
    uri: str, into: Path, cache: Path | None, limits: FetchLimits, progress: Progress
) -> FetchResult:
    """Fetch a model into a folder. Raises FetchError.

    cache: folder of a store that other fetches share; None: the model's folder has its own. progress: it is
    entered.
    """
    start_s = time.monotonic()
    store = Store(cache or into / OWN_STORE)
    with fetching_into_store(uri, store, limits, progress) as model:
        manifest = model.manifest
        names = {file.name: model.folder / file.name for file in manifest.files}
        if read_manifest(into) != manifest:
            link_files(into, manifest.files, names)
            write_manifest(into, manifest)
        if cache is not None and limits.hold_s:
            leave_lease(store.new_use_path(model.folder), limits.hold_s)
    return FetchResult(
        resolved_uri=manifest.resolved_uri,
        total_bytes=manifest.total_bytes,
        downloaded_bytes=progress.downloaded_bytes,
        num_files=len(manifest.files),
        num_cache_hits=model.num_cache_hits,
        seconds=round(time.monotonic() - start_s, 3),
    )


@contextmanager
def fetching_into_store(
    uri: str, store: Store, limits: FetchLimits, progress: Progress
) -> Iterator[StoredModel]:
    """Fetch a model into a store, which cannot evict it within the block. Raises FetchError.

    An OSError of the block becomes a FetchError, too. progress: it is entered.
    """
    fetch = _Fetch(parse_source(uri), store, Deadline(limits), progress)
    try:
        with progress, fetch.used_model() as manifest:
            yield StoredModel(manifest, fetch.folder, fetch.num_cache_hits)
    except OSError as error:
        raise write_failed(error) from error


class _Fetch:
    """A fetch of one model into a store."""

    def __init__(
        self, source: ModelSource, store: Store, deadline: Deadline, progress: Progress
    ) -> None:
        self._source, self._store, self._deadline, self._progress = (
            source,
            store,
            deadline,
            progress,
        )
        self._limits = deadline.limits
        self.folder = store.root
        self.num_cache_hits = 0

    @contextmanager
    def used_model(self) -> Iterator[Manifest]:
        """Yield the model in the store, under a lease against eviction. Raises FetchError, OSError."""
        self._store.root.mkdir(parents=True, exist_ok=True)
        known = self._known()
        if known is not None:
            with self._use(known):
                if (manifest := self._find(known)) is not None:
                    yield manifest
                    return
        if is_offline():
            raise FetchError(
                "Offline",
                "HF_HUB_OFFLINE is set and the cache does not have this model: unset it, or fetch the "
                "model once before",
            )
        with closing(open_source(self._source, self._limits)) as remote:
            listing = self._deadline.retrying(remote.resolve)
            check_pin(self._source, listing.resolved)
            with self._use(listing.resolved):
                manifest = self._find(listing.resolved) or self._fetch(remote, listing)
                self._store.remember_revision(self._source, listing.resolved)
                yield manifest

    def _find(self, resolved: ModelSource) -> Manifest | None:
        """The model, if the store has it."""
        manifest = self._store.find_model(resolved)
        self.num_cache_hits = 0 if manifest is None else len(manifest.files)
        return manifest

    def _known(self) -> ModelSource | None:
        """The revision, if it is known without a request to the source; else None."""
        if self._source.is_resolved:
            return self._source
        return self._store.last_revision(self._source) if is_offline() else None

    def _use(self, resolved: ModelSource) -> Lease:
        """Take a lease that keeps a model from eviction."""
        self.folder = self._store.model_path(resolved)
        return acquire(self._store.new_use_path(self.folder), self._wait)

    def _wait(self) -> None:
        self._deadline.sleep(POLL_S)

    def _fetch(self, remote: Source, listing: Listing) -> Manifest:
        """Download what the store lacks, and make the model whole. Raises FetchError, OSError."""
        if listing.archives:
            return self._fetch_archives(remote, listing)
        files = select(listing.files, self._limits)
        self._progress.say(f"Fetching {listing.resolved}: {len(files)} files")
        entries = tuple(ModelFile(file.name, file.size_bytes, file.blob) for file in files)
        for attempt in range(MAX_ATTEMPTS):
            self._download(remote, files)
            try:
                return self._store.add_model(listing.resolved, entries)
            except FileNotFoundError:
                if attempt + 1 == MAX_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _fetch_archives(self, remote: Source, listing: Listing) -> Manifest:
        """Download and unpack archives, and make the model whole. Raises FetchError, OSError.

        One process does it, as the archives are not kept: another one would download them again.
        """
        name = self.folder.name
        with acquire(self._store.lease_path(f"model-{name}"), self._wait):
            if (manifest := self._find(listing.resolved)) is not None:
                return manifest
            self._progress.say(f"Fetching {listing.resolved}: {len(listing.archives)} archives")
            self._download(remote, listing.archives)
            blobs = [self._store.blob_path(archive.blob) for archive in listing.archives]
            folder = self._store.root / "partial" / f"{name}.unpacked"
            try:
                files = unpack_model(
                    blobs, listing.files, folder, self._limits, self._deadline.check
                )
                for file in files:
                    place_unpacked(file, self._store.blob_path(file.blob))
                self._download(remote, files)
                entries = tuple(ModelFile(file.name, file.size_bytes, file.blob) for file in files)
                manifest = self._store.add_model(listing.resolved, entries)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            self.num_cache_hits = 0
            for blob in blobs:
                blob.unlink(missing_ok=True)
            return manifest

    def _download(self, remote: Source, files: Sequence[SourceFile]) -> None:
        """Download the blobs that are not in the store. Raises FetchError, OSError."""
        with ExitStack() as stack:
            missing = self._lease_missing(stack, files)
            partials = self._open_partials(stack, missing)
            done_bytes = sum(partial.done_bytes for _, partial, _ in partials)
            total_bytes = sum(file.size_bytes for file in missing)
            with self._progress.downloading(total_bytes, done_bytes):
                Download(remote, self._deadline, self._progress).run(partials)
            self.num_cache_hits = len(files) - len(missing)

    def _open_partials(
        self, stack: ExitStack, files: Sequence[SourceFile]
    ) -> list[tuple[SourceFile, PartialFile, Path]]:
        """Reserve space for files, and open their partial files. Raises FetchError, OSError.

        Fetches do so one after another: partial files show the others how much space is reserved. Small files
        come first: they are often those of several models, whose fetches wait for them.
        """
        store = self._store
        partials: list[tuple[SourceFile, PartialFile, Path]] = []
        if not files:
            return partials
        with acquire(store.room_lease_path, self._wait):
            for file in sorted(files, key=lambda file: file.size_bytes):
                partial = PartialFile(store.partial_path(file.blob), file, self._limits.part_bytes)
                stack.callback(partial.close)
                partials.append((file, partial, store.blob_path(file.blob)))
            needed_bytes = sum(
                file.size_bytes - partial.done_bytes for file, partial, _ in partials
            )
            make_room(store, needed_bytes, self._limits, own={file.blob for file in files})
        return partials

    def _lease_missing(self, stack: ExitStack, files: Sequence[SourceFile]) -> list[SourceFile]:
        """Lease the files that are missing. Waits for other processes that download some of them.

        Leases are taken in the order of the blobs' keys, so that two processes never wait for each other.
        """
        missing = []
        for _, file in sorted({file.blob: file for file in files}.items()):
            lease = self._lease_unless_there(file)
            if lease is not None:
                stack.callback(lease.release)
                missing.append(file)
        return missing

    def _lease_unless_there(self, file: SourceFile) -> Lease | None:
        """Lease a file; None as soon as the store has it, though who downloads it has others to download."""
        blob, is_said = self._store.blob_path(file.blob), False
        while not blob.exists():
            lease = try_acquire(self._store.lease_path(file.blob))
            if lease is not None:
                if not blob.exists():
                    return lease
                lease.release()
            else:
                if not is_said:
                    is_said = True
                    self._progress.say(f"Waiting for another process, which fetches {file.name}")
                self._wait()
        return None
