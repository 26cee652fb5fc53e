"""Caches objects that the API server rejected, so that not every reconcile sends them again."""

import hashlib
import json
from dataclasses import dataclass

from penstock.core.spec.service import Object

REJECTION_TTL_S = 120.0  # after that the same body is sent again: a webhook may allow it by then


@dataclass(frozen=True, slots=True)
class _Entry:
    rejection: tuple[str, str]
    expires_s: float


class RejectionCache:
    """Recent rejections (reason, message) by service and body."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], _Entry] = {}

    def get(self, uid: str, body: Object, now_s: float) -> tuple[str, str] | None:
        """Return (reason, message) if this body was rejected recently, else None. uid: the service's."""
        entry = self._entries.get((uid, _digest(body)))
        return entry.rejection if entry is not None and now_s < entry.expires_s else None

    def add(self, uid: str, body: Object, rejection: tuple[str, str], now_s: float) -> None:
        """Cache a rejection for REJECTION_TTL_S."""
        self._entries = {key: e for key, e in self._entries.items() if now_s < e.expires_s}
        self._entries[uid, _digest(body)] = _Entry(rejection, now_s + REJECTION_TTL_S)

    def forget(self, uid: str) -> None:
        """Drop the service's rejections: its objects are sent again."""
        self._entries = {key: entry for key, entry in self._entries.items() if key[0] != uid}

    def expiry_s(self, uid: str, now_s: float) -> float | None:
        """Seconds until the first of the service's rejections expires; None without any."""
        ends = [e.expires_s - now_s for (owner, _), e in self._entries.items() if owner == uid]
        return min((each for each in ends if each > 0), default=None)


def _digest(body: Object) -> str:
    """Hash of a body. Without its resource version, which each status of a Deployment changes."""
    metadata = {k: v for k, v in body.get("metadata", {}).items() if k != "resourceVersion"}
    body = body | {"metadata": metadata}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
