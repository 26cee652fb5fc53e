"""Informer: a cache of Kubernetes objects kept current by list and watch."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Iterator

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import Resource
from penstock.clients.machine.clock import monotonic
from penstock.core.backoff import backoff_s
from penstock.errors import Forbidden, KubeError, NotFound, Transient

logger = logging.getLogger(__name__)

FIRST_RETRY_S, LAST_RETRY_S = 0.2, 10.0
# A watch that ends sooner than this without an event counts as failed, as in client-go.
MIN_WATCH_S = 1.0
# Time for which lists in a row must not find an optional kind before its objects are dropped, in seconds. An
# API server that has just started answers 404 until it has read its CRDs, which takes about a second.
MIN_MISSING_S = 5.0

Key = tuple[str, str]


def key_of(item: Object) -> Key:
    """Return (namespace, name) of an object."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class _Absent(Exception):
    """The API server has no such kind, or denies it, and the kind is optional."""


class Informer:
    """Cache of the objects of one kind, kept current by a watch.

    namespace: None for all. selector, field_selector: of labels and fields; empty for all. changed: called
    with the key after each change, on the event loop. restarted: called with the kind each time that the
    objects are listed again. synced: set once the objects were listed. confirmed_s: when the API server
    last confirmed the objects, by a list, an event or a bookmark, on the monotonic clock. is_optional:
    whether the kind may be missing, or the right to list it, as before an upgrade of the cluster's CRDs
    and roles. Then it is looked for again without messages, and has no objects once it has been missing
    for MIN_MISSING_S. reduce: returns what is kept of an object, with its metadata. page_size: objects that
    are listed at a time; None: all.
    """

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        *,
        namespace: str | None = None,
        selector: str = "",
        field_selector: str = "",
        changed: Callable[[Key], None],
        restarted: Callable[[str], None] = lambda _: None,
        is_optional: bool = False,
        reduce: Callable[[Object], Object] = lambda item: item,
        page_size: int | None = None,
    ) -> None:
        self._kube = kube
        self._resource = resource
        self._namespace = namespace
        self._query = {"labelSelector": selector} if selector else {}
        if field_selector:
            self._query["fieldSelector"] = field_selector
        self._changed = changed
        self._restarted = restarted
        self._is_optional = is_optional
        self._reduce = reduce
        self._page_size = page_size
        # The answer to the last list of an optional kind that is missing or denied; None: it was listed.
        self._absence: KubeError | None = None
        # Time of the first of the last lists in a row that were answered with a 404; None: the last was not.
        self._missing_since_s: float | None = None
        self._items: dict[Key, Object] = {}
        # Whether a watch since the last list gave an event.
        self._has_watched = False
        self.synced = asyncio.Event()
        self.confirmed_s = monotonic()

    def __iter__(self) -> Iterator[Object]:
        return iter(self._items.values())

    @property
    def is_absent(self) -> bool:
        """Whether the optional kind is missing, or the right to list it."""
        return self._absence is not None

    @property
    def is_denied(self) -> bool:
        """Whether the right to list the optional kind is missing."""
        return isinstance(self._absence, Forbidden)

    def get(self, key: Key) -> Object | None:
        """Return the cached object; None if there is none."""
        return self._items.get(key)

    async def run(self) -> None:
        """List and watch until cancelled. Errors are retried with exponential back-off and jitter."""
        num_failures = 0  # in a row
        is_first = True
        while True:
            self._has_watched = False
            if not is_first:
                self._restarted(self._resource.plural)
            is_first = False
            try:
                version = await self._relist()
                self._absence = None
                self.synced.set()
                await self._watch(version)
            except _Absent:
                is_first = True  # nothing was watched that could restart
            except NotFound as error:
                if self._has_watched:
                    num_failures = 0
                    continue  # the version is too old: list again at once
                logger.warning("watching %s: %s", self._resource.plural, error)
            except KubeError as error:
                logger.warning("watching %s: %s", self._resource.plural, error)
            except Exception:  # an informer that stopped would be stale forever
                logger.exception("watching %s", self._resource.plural)
            if self._has_watched:
                num_failures = 0
            pause_s = backoff_s(num_failures, FIRST_RETRY_S, LAST_RETRY_S)
            await asyncio.sleep(pause_s * (0.5 + random.random()))  # noqa: S311 - jitter
            num_failures += 1

    async def _relist(self) -> str:
        missing_since_s, self._missing_since_s = self._missing_since_s, None
        try:
            items, version = await self._kube.list(
                self._resource, self._namespace,
                page_size=self._page_size, reduce=self._reduce, **self._query,
            )  # fmt: skip
        except (NotFound, Forbidden) as error:
            if self._is_optional:
                self._note_absent(error)
                if isinstance(error, NotFound):
                    self._note_missing(missing_since_s)
                raise _Absent from error
            if isinstance(error, Forbidden):
                raise
            self.synced.set()  # a kind that is not installed has no objects
            raise Transient(f"the kind is not installed: {error}") from error
        self._replace(items)
        return version

    def _note_absent(self, error: KubeError) -> None:
        """Record that the API server has no such kind, or denies it, which is logged once."""
        if self._absence is None:
            logger.info("no %s are watched: %s", self._resource.plural, error)
        self._absence = error
        self.confirmed_s = monotonic()
        self.synced.set()

    def _note_missing(self, since_s: float | None) -> None:
        """Drop the objects if the kind has been missing for long. since_s: None: the last list found it."""
        now_s = monotonic()
        self._missing_since_s = now_s if since_s is None else since_s
        if now_s - self._missing_since_s >= MIN_MISSING_S:
            self._replace([])

    def _replace(self, items: Iterable[Object]) -> None:
        """Replace all objects, as listed now."""
        self.confirmed_s = monotonic()
        fresh = {key_of(item): item for item in items}
        stale, self._items = self._items, fresh
        for key in stale.keys() | fresh.keys():
            if key not in stale or key not in fresh or _version(stale[key]) != _version(fresh[key]):
                self._changed(key)

    async def _watch(self, version: str) -> None:
        while True:
            started_s, has_events = monotonic(), False
            async for kind, item in self._kube.watch(
                self._resource, self._namespace, version, **self._query
            ):
                self._has_watched = has_events = True
                self.confirmed_s = monotonic()
                version = _version(item)
                if kind == "BOOKMARK":
                    continue
                key = key_of(item)
                if kind == "DELETED":
                    self._items.pop(key, None)
                else:
                    self._items[key] = self._reduce(item)
                self._changed(key)
            if not has_events and monotonic() - started_s < MIN_WATCH_S:
                raise Transient("the watch ended at once")


def _version(item: Object) -> str:
    version: str = item["metadata"]["resourceVersion"]
    return version
