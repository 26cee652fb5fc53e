"""Fetches of a node's cache: at most one for each model, which all pods that request the model share."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from penstock_engine.contract.model_source import ModelSource
from penstock_engine.sources.deadline import hang_time_s
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.fetch import StoredModel, fetching_into_store
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.progress import Progress
from penstock_engine.sources.storage.store import Store

MAX_FETCHES = 8  # at a time; each has as many connections as its limits say
# Longest time after a fetch for which it keeps the model from eviction, in seconds, until all requests for it
# have taken their own leases. They need milliseconds; that of a pod that was killed takes none.
ANSWER_S = 10.0


class TooManyFetches(Exception):
    """MAX_FETCHES fetches run already."""


class Fetch:
    """A fetch in a thread. result: the model, or the reason of the failure."""

    def __init__(self, source: ModelSource, progress: Progress) -> None:
        self.source, self.progress = source, progress
        self.result: Future[StoredModel | FetchError] = Future()
        self.result.set_running_or_notify_cancel()  # from now on no waiter can cancel it
        self.num_waiting = 0
        self.is_unused = threading.Event()


class Fetches:
    """Starts fetches into a store. Thread-safe.

    say: writes a line. end: called if a fetch hangs after its deadline. It ends the process, which is then
    started again, as no thread can be ended.
    """

    def __init__(
        self,
        store: Store,
        limits: FetchLimits,
        say: Callable[[str], None],
        end: Callable[[], None],
    ) -> None:
        self._store, self._limits, self._say, self._end = store, limits, say, end
        self._lock = threading.Lock()
        self._running: dict[str, Fetch] = {}

    def join(self, source: ModelSource) -> tuple[Fetch, bool]:
        """The fetch of a model, and whether it starts now. `leave` has to follow. Raises TooManyFetches."""
        uri = str(source)
        with self._lock:
            fetch = self._running.get(uri)
            is_first = fetch is None
            if fetch is None:
                if len(self._running) >= MAX_FETCHES:
                    raise TooManyFetches
                progress = Progress(lambda line: self._say(f"{uri}: {line}"))
                fetch = self._running[uri] = Fetch(source, progress)
                threading.Thread(target=self._run, args=(fetch,), name="fetch", daemon=True).start()
            fetch.num_waiting += 1
            return fetch, is_first

    @property
    def num_waiting(self) -> int:
        """Number of requests that wait for fetches, or read their results."""
        with self._lock:
            return sum(fetch.num_waiting for fetch in self._running.values())

    def leave(self, fetch: Fetch) -> None:
        """End the wait of a request for a fetch. The fetch goes on."""
        with self._lock:
            fetch.num_waiting -= 1
            if fetch.num_waiting == 0 and fetch.result.done():
                fetch.is_unused.set()

    def _run(self, fetch: Fetch) -> None:
        limits = self._limits
        timer = threading.Timer(hang_time_s(limits.deadline_s), self._end_overdue, (fetch,))
        timer.daemon = True
        timer.start()
        try:
            with fetching_into_store(
                str(fetch.source), self._store, limits, fetch.progress
            ) as model:
                timer.cancel()
                self._answer(fetch, model)
                fetch.is_unused.wait(ANSWER_S)
        except Exception as error:  # noqa: BLE001 - those who wait need an answer
            failure = error if isinstance(error, FetchError) else _unexpected(error)
            fetch.progress.say(f"it was not fetched: {failure}")
            if fetch.source.is_resolved:
                self._store.forget_use(self._store.model_path(fetch.source))
            if not fetch.result.done():
                self._answer(fetch, failure)
        finally:
            timer.cancel()
            with self._lock:
                del self._running[str(fetch.source)]

    def _answer(self, fetch: Fetch, result: StoredModel | FetchError) -> None:
        with self._lock:
            fetch.result.set_result(result)
            if fetch.num_waiting == 0:
                fetch.is_unused.set()

    def _end_overdue(self, fetch: Fetch) -> None:
        fetch.progress.say("its fetch hangs after its deadline: this process ends")
        self._end()


def _unexpected(error: Exception) -> FetchError:
    return FetchError(
        "Unexpected",
        f"the fetch failed with {type(error).__name__}: see the log of the node's cache",
        is_retryable=True,
    )
