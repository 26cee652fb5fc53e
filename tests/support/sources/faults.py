"""Ways in which a server of files can fail."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "status", "hang", "hang_in_body", "trickle", "truncate", "corrupt", "whole", "redirect", "drop", "longer"
]  # fmt: skip


@dataclass(slots=True)
class Fault:
    """A failure of the requests whose path contains a text, so many times.

    kind: status answers with a status; hang sends nothing, hang_in_body only headers and some bytes; trickle
    sends a few bytes a second; truncate ends the connection in the middle; corrupt changes a byte; whole
    ignores ranges; redirect sends to `location`; drop ends the connection at once; longer sends more than
    it should.
    """

    kind: Kind
    path: str = ""
    times: int = 1_000_000
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    location: str = ""


class Faults:
    """The faults of a server, and what is left of them."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, *faults: Fault) -> None:
        with self._lock:
            self._faults += faults

    def take(self, path: str) -> Fault | None:
        """The fault that a request to this path meets."""
        with self._lock:
            for fault in self._faults:
                if fault.path in path and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None
