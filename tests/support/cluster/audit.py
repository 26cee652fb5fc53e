"""Reads the API server's audit log: user, verb, object and status code of each request."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.local.record import Cluster

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
FORBIDDEN = 403

Right = tuple[str, str, str]  # API group, resource with its subresource, verb


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An answered request. at: RFC 3339 with microseconds, so that strings sort by time."""

    at: str
    user: str
    verb: str
    group: str
    resource: str  # deployments/scale
    namespace: str
    name: str
    code: int

    @classmethod
    def of(cls, event: dict[str, Any]) -> "AuditEntry":
        """Parse one event of the log."""
        reference = event.get("objectRef", {})
        parts = (reference.get("resource", ""), reference.get("subresource", ""))
        return cls(
            at=event["requestReceivedTimestamp"],
            user=event["user"]["username"],
            verb=event["verb"],
            group=reference.get("apiGroup", ""),
            resource="/".join(filter(None, parts)),
            namespace=reference.get("namespace", ""),
            name=reference.get("name", ""),
            code=event.get("responseStatus", {}).get("code", 0),
        )

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES

    def __str__(self) -> str:
        account = self.user.rsplit(":", 1)[-1]
        return f"{account}: {self.verb} {self.resource} {self.namespace}/{self.name} {self.code}"


class AuditLog:
    """The audit log of a cluster's API server, from the cluster's start."""

    def __init__(self, cluster: Cluster) -> None:
        self._path = cluster.logs / "audit.jsonl"

    def position(self) -> int:
        """Return the current length of the log in bytes."""
        return self._path.stat().st_size

    def entries(self, offset: int = 0) -> list[AuditEntry]:
        """Read all requests from a byte offset on, without a last line that is incomplete."""
        with self._path.open("rb") as log:
            log.seek(offset)
            *lines, _ = log.read().split(b"\n")
        return [AuditEntry.of(json.loads(line)) for line in lines]


def service_account_user(name: str, namespace: str = "penstock-system") -> str:
    """Return the user name of a ServiceAccount at the API server."""
    return f"system:serviceaccount:{namespace}:{name}"


# Resources of the leader election. A review stores nothing.
_NO_WRITES = ("leases", "selfsubjectreviews")


def writes_by(users: Iterable[str], entries: Iterable[AuditEntry]) -> list[AuditEntry]:
    """Select the writes of these users, without those of the leader election."""
    wanted = set(users)
    return [e for e in entries if e.user in wanted and e.is_write and e.resource not in _NO_WRITES]


def rights_used(user: str, entries: Iterable[AuditEntry]) -> set[Right]:
    """Return the RBAC rights that a user's granted requests needed.

    An apply that creates an object needs `create` and `patch`.
    """
    used = set()
    for entry in entries:
        if entry.user != user or not entry.resource or entry.code == FORBIDDEN:
            continue
        used.add((entry.group, entry.resource, entry.verb))
        if entry.verb == "patch" and entry.code == 201:
            used.add((entry.group, entry.resource, "create"))
    return used


def denied(user: str, entries: Iterable[AuditEntry]) -> list[AuditEntry]:
    """Select a user's requests that were answered with 403."""
    return [e for e in entries if e.user == user and e.code == FORBIDDEN]
