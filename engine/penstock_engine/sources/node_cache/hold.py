"""Keeps models in the cache of a node while an engine beside this process serves them.

It runs as long as the engine. So it is a program of its own that imports little, with plain arguments.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from penstock_engine.sources.node_cache.connection import NodeCacheError, request
from penstock_engine.sources.node_cache.routes import HEARTBEAT_S, HOLD_PATH
from penstock_engine.sources.storage.model_folder import Manifest, read_manifest

RETRY_S = 3.0  # between attempts to connect; a server that starts again keeps models for 60 s
MAX_LINE_BYTES = 1024  # of a heartbeat
# Least time that a connection has to last before its end is logged again, in seconds: a server that fails at
# once would fill the log.
STABLE_S = 2 * HEARTBEAT_S


def held_models(folders: Sequence[Path], mount: Path) -> list[str]:
    """URIs of the models in folders whose files are in the cache of the node.

    A model that the pod has fetched itself needs no hold. Raises ValueError for a folder without a model.
    """
    models = []
    for folder in folders:
        manifest = read_manifest(folder)
        if manifest is None:
            raise ValueError(f"{folder} has no whole model: fetch it into this folder again")
        if _leads_into(folder, manifest, mount):
            models.append(manifest.resolved_uri)
    return models


def _leads_into(folder: Path, manifest: Manifest, mount: Path) -> bool:
    places = [folder / file.name for file in manifest.files]
    start = f"{mount.absolute()}/"
    return any(place.is_symlink() and os.readlink(place).startswith(start) for place in places)


def keep_held(resolved_uri: str, mount: Path, ended: threading.Event) -> None:
    """Hold a model by an open connection, and connect again whenever it breaks, until an event."""
    is_said = False
    while not ended.is_set():
        start_s = time.monotonic()
        try:
            with request(mount, HOLD_PATH, {"resolved_uri": resolved_uri}) as answer:
                while answer.readline(MAX_LINE_BYTES):
                    if is_said and time.monotonic() - start_s > STABLE_S:
                        is_said = False
                        _say(f"{resolved_uri} is held again")
            problem = "its server ended the connection"
        except NodeCacheError as error:
            problem = str(error)
        if not is_said:
            is_said = True
            _say(
                f"{resolved_uri} is not held in {mount}: {problem}; trying again every {RETRY_S:.0f} s"
            )
        ended.wait(RETRY_S)


def _say(sentence: str) -> None:
    print(f"penstock-engine hold: {sentence}", file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> int:
    """Hold the models of folders until SIGTERM. words: the mount and the folders. Returns the exit code."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    mount, *folders = map(Path, words)
    try:
        models = held_models(folders, mount)
    except ValueError as error:
        _say(str(error))
        return 1
    for model in models:
        threading.Thread(target=keep_held, args=(model, mount, ended), daemon=True).start()
    ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
