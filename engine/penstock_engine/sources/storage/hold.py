"""Keeps models of a cache from being evicted while an engine beside this process serves them.

It runs as long as the engine, so it is a program that imports little: its arguments are cache and folders.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from penstock_engine.contract.model_source import parse_model_source
from penstock_engine.sources.storage.lease import POLL_S, Lease, acquire
from penstock_engine.sources.storage.model_folder import Manifest, read_manifest
from penstock_engine.sources.storage.store import Store

LOOK_S = (
    10.0  # between checks of the folders and leases: a third of the time after which leases expire
)


class HoldError(Exception):
    """A model that cannot be held, as a sentence that says what to do."""


def hold(folders: Sequence[Path], cache: Path, ended: threading.Event, look_s: float) -> None:
    """Hold the models that folders have, until an event. Raises HoldError if one has none, OSError.

    look_s: seconds between checks that the folders still have their models.
    """
    if not cache.is_dir():
        raise HoldError(
            f"there is no cache at {cache}: name the folder that was given to the fetch"
        )
    with ExitStack() as stack:
        models = [_HeldModel(folder, Store(cache)) for folder in folders]
        for model in models:
            stack.callback(model.release)
            model.take()
        while not ended.wait(look_s):
            for model in models:
                with suppress(OSError):  # of a network file system, for a moment
                    model.check()


class _HeldModel:
    """A model's folder, and the lease of the model in the store."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store
        self._manifest = self._read()
        self._is_whole = True
        self._lease: Lease | None = None

    def _read(self) -> Manifest:
        manifest = read_manifest(self._folder)
        if manifest is None:
            raise HoldError(f"{self._folder} has no whole model: fetch it into this folder again")
        return manifest

    def take(self) -> None:
        """Take the lease. Raises OSError."""
        model = self._store.model_path(parse_model_source(self._manifest.resolved_uri))
        self._lease = acquire(
            self._store.new_use_path(model), lambda: time.sleep(POLL_S), outlives_holder=True
        )

    def check(self) -> None:
        """Print whether the folder still has the model, and replace a lease that was removed. Raises OSError.

        The engine has read its model already and goes on: the end of this process would take it out of
        service. A network file system may also fail for a moment.
        """
        is_whole = read_manifest(self._folder) == self._manifest
        if is_whole != self._is_whole:
            self._is_whole = is_whole
            state = "has its model again" if is_whole else "has no longer its model"
            print(f"penstock-engine hold: {self._folder} {state}", file=sys.stderr, flush=True)
        if self._lease is not None and self._lease.is_lost:
            self.release()
            self.take()

    def release(self) -> None:
        if self._lease is not None:
            self._lease.release()


def main(words: Sequence[str]) -> int:
    """Hold the models of folders until SIGTERM. words: the cache and the folders. Returns the exit code."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    cache, *folders = map(Path, words)
    try:
        hold(folders, cache, ended, LOOK_S)
    except HoldError as error:
        print(f"penstock-engine hold: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        problem = os.strerror(error.errno or 0)
        print(
            f"penstock-engine hold: {cache} cannot be used ({problem}): mount it writable for user "
            f"{os.geteuid()}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
