"""Reads Kubernetes objects for the routing snapshot. There may be thousands, and few change at a time."""

import logging
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.clients.kubernetes.client import Object

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Reading(Generic[T]):
    """The result of reading an object's last body. value: None if it gives none. error: empty: none."""

    body: Object
    value: T | None
    error: str = ""


class ObjectReader(Generic[T]):
    """Keeps what was read from each object of one kind, with the object. Only new bodies are read.

    kind: for the log. read: called with a body and with what was read from the one before; raises an error
    if the body is unreadable, which is logged once for each new error. order: sort key of the bodies; None:
    they stay as they come. keeps_last: whether an object whose new body is unreadable stays as it was;
    otherwise it is left out.
    """

    def __init__(
        self,
        kind: str,
        read: Callable[[Object, T | None], T],
        *,
        order: Callable[[Object], tuple[str, ...]] | None = None,
        keeps_last: bool = True,
    ) -> None:
        self._kind = kind
        self._read = read
        self._order = order
        self._keeps_last = keeps_last
        self._bodies: list[Object] = []
        self._readings: dict[str, _Reading[T]] = {}
        self._values: Mapping[str, T] = {}

    def read_all(self, objects: Iterable[Object]) -> Mapping[str, T]:
        """Return what was read by "namespace/name". objects: all of the kind."""
        bodies = list(objects)
        if len(bodies) == len(self._bodies) and all(map(operator.is_, bodies, self._bodies)):
            return self._values
        ordered = bodies if self._order is None else sorted(bodies, key=self._order)
        self._readings = {
            name: self._reading(name, b) for b in ordered for name in [object_name(b)]
        }
        self._bodies = bodies
        self._values = {
            name: each.value for name, each in self._readings.items() if each.value is not None
        }
        return self._values

    def get(self, name: str) -> T | None:
        """Return what was read from the object "namespace/name"; None if there is nothing."""
        return self._values.get(name)

    def _reading(self, name: str, body: Object) -> _Reading[T]:
        last = self._readings.get(name)
        if last is not None and last.body is body:
            return last
        last_value = None if last is None else last.value
        try:
            return _Reading(body, self._read(body, last_value))
        except Exception as error:
            message = repr(error)
            if last is None or last.error != message:
                logger.error("the %s cannot be read", f"{self._kind} {name}", exc_info=error)
            return _Reading(body, last_value if self._keeps_last else None, message)


def object_name(body: Object) -> str:
    """Return the object's "namespace/name"."""
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"
