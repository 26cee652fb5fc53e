"""Remembers objects that the API server refused, so that not every reconcile sends them again."""

import hashlib
import json
from dataclasses import dataclass

from penstock.core.spec.service import Object

# How long a body is not sent again. A webhook or a policy may allow it later.
REFUSED_FOR_S = 120.0


@dataclass(frozen=True, slots=True)
class _Entry:
    refusal: tuple[str, str]
    until_s: float


class Refusals:
    """Recent refusals by service and exact body."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], _Entry] = {}

    def get(self, uid: str, body: Object, now_s: float) -> tuple[str, str] | None:
        """(reason, message) of a recent refusal of this body, or None. uid: of the service."""
        entry = self._entries.get((uid, _digest(body)))
        return entry.refusal if entry is not None and now_s < entry.until_s else None

    def add(self, uid: str, body: Object, refusal: tuple[str, str], now_s: float) -> None:
        """Remember a refusal for REFUSED_FOR_S."""
        self._entries = {key: e for key, e in self._entries.items() if now_s < e.until_s}
        self._entries[uid, _digest(body)] = _Entry(refusal, now_s + REFUSED_FOR_S)

    def forget(self, uid: str) -> None:
        """Forget the service's refusals: its objects are sent again."""
        self._entries = {key: entry for key, entry in self._entries.items() if key[0] != uid}

    def expiry_s(self, uid: str, now_s: float) -> float | None:
        """Seconds until the first of the service's refusals expires; None without any."""
        ends = [e.until_s - now_s for (owner, _), e in self._entries.items() if owner == uid]
        return min((each for each in ends if each > 0), default=None)


def _digest(body: Object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
