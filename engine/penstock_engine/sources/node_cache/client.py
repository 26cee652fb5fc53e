"""Fetches a model into a pod's folder with the cache of its node, or else by itself."""

import shutil
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from penstock_engine.contract.model_source import ModelSource
from penstock_engine.sources.deadline import Deadline
from penstock_engine.sources.fetch import OWN_STORE, FetchResult, fetch_model
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.node_cache.answer import MAX_LINE_BYTES, NodeCacheModel, read_line
from penstock_engine.sources.node_cache.connection import NodeCacheError, request
from penstock_engine.sources.node_cache.routes import FETCH_PATH
from penstock_engine.sources.progress import Progress
from penstock_engine.sources.resolution import parse_source
from penstock_engine.sources.storage.model_folder import link_files, remove_marker, write_manifest

# Time for which a request is repeated while its server is absent or busy, or after it has ended the
# connection, in seconds: a server that ended starts again within some seconds. A pod may also start before
# the server, on a new node or while the DaemonSet is updated.
RETRY_FOR_S = 30.0
RETRY_PAUSE_S = 1.0  # between two requests


def fetch_with_node_cache(
    uri: str, into: Path, mount: Path, limits: FetchLimits, progress: Progress
) -> FetchResult:
    """Fetch a model into a folder as links to the cache of the node. Raises FetchError.

    mount: folder of the cache. If its server cannot be reached, refuses or fails, the model is fetched into
    a store of the folder `into`, within the time that is left.
    """
    start_s = time.monotonic()
    source = parse_source(uri)
    deadline = Deadline(limits)
    try:
        with progress:
            model = _Request(source, mount, deadline, progress).run()
            link_files(into, model.manifest.files, model.paths, are_symbolic=True)
            write_manifest(into, model.manifest)
            shutil.rmtree(into / OWN_STORE, ignore_errors=True)
    except (NodeCacheError, OSError) as error:
        progress.say(f"The cache of the node at {mount} is not used: {error}")
        progress.mirror(None)
        with suppress(OSError):  # the fetch says what is wrong with the folder
            remove_marker(into)  # its links may lead into the cache, where no lease keeps the model
        deadline.check()
        own_limits = replace(limits, deadline_s=deadline.rest_s)
        return fetch_model(uri, into, None, own_limits, progress)
    return FetchResult(
        resolved_uri=model.manifest.resolved_uri,
        total_bytes=model.manifest.total_bytes,
        downloaded_bytes=model.downloaded_bytes,
        num_files=len(model.manifest.files),
        num_cache_hits=model.num_cache_hits,
        seconds=round(time.monotonic() - start_s, 3),
    )


class _Request:
    """A request for one model, which is repeated after a restart of the server."""

    def __init__(
        self, source: ModelSource, mount: Path, deadline: Deadline, progress: Progress
    ) -> None:
        self._source, self._mount = source, mount
        self._deadline, self._progress = deadline, progress
        self._has_answered = False
        self._done_bytes = 0  # largest count of all answers
        self._failing_since_s: float | None = None  # time of the first failure after that count

    def run(self) -> NodeCacheModel:
        """The model, once the cache has it. Raises NodeCacheError, FetchError (DeadlineExceeded)."""
        while True:
            try:
                return self._ask()
            except NodeCacheError as error:
                may_return = error.is_absent or (error.is_disconnect and self._has_answered)
                if not (error.is_busy or may_return):
                    raise
                if self._failing_since_s is None:
                    self._failing_since_s = time.monotonic()
                    self._progress.say(f"The cache of the node is asked again: {error}")
                elif time.monotonic() - self._failing_since_s > RETRY_FOR_S:
                    raise
            self._deadline.sleep(RETRY_PAUSE_S)

    def _ask(self) -> NodeCacheModel:
        """Ask once. Raises NodeCacheError, FetchError (DeadlineExceeded)."""
        wanted = {"uri": str(self._source), "hold_seconds": self._deadline.limits.hold_s}
        with request(self._mount, FETCH_PATH, wanted) as answer:
            self._has_answered = True
            while True:
                content = read_line(answer.readline(MAX_LINE_BYTES), self._source, self._mount)
                if isinstance(content, NodeCacheModel):
                    return content
                if content.done_bytes > self._done_bytes:
                    self._done_bytes, self._failing_since_s = content.done_bytes, None
                self._progress.mirror(content)
                self._deadline.check()
