"""The API server's audit log, read as facts: who asked for what, and whether it was granted."""

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
    """One answered request. at: RFC 3339 with microseconds, so that text sorts by time."""

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
        about = event.get("objectRef", {})
        parts = (about.get("resource", ""), about.get("subresource", ""))
        return cls(
            at=event["requestReceivedTimestamp"],
            user=event["user"]["username"],
            verb=event["verb"],
            group=about.get("apiGroup", ""),
            resource="/".join(filter(None, parts)),
            namespace=about.get("namespace", ""),
            name=about.get("name", ""),
            code=event.get("responseStatus", {}).get("code", 0),
        )

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES

    def __str__(self) -> str:
        account = self.user.rsplit(":", 1)[-1]
        return f"{account}: {self.verb} {self.resource} {self.namespace}/{self.name} {self.code}"


class AuditLog:
    """What a cluster's API server was asked since the cluster began."""

    def __init__(self, cluster: Cluster) -> None:
        self._path = cluster.logs / "audit.jsonl"

    def position(self) -> int:
        """Where the log ends now, in bytes."""
        return self._path.stat().st_size

    def entries(self, since: int = 0) -> list[AuditEntry]:
        """Every request from `since` on. A line that is still being written is left for later."""
        with self._path.open("rb") as log:
            log.seek(since)
            *lines, _ = log.read().split(b"\n")
        return [AuditEntry.of(json.loads(line)) for line in lines]


def account(name: str, namespace: str = "penstock-system") -> str:
    """The user that a ServiceAccount is to the API server."""
    return f"system:serviceaccount:{namespace}:{name}"


def writes_by(users: Iterable[str], entries: Iterable[AuditEntry]) -> list[AuditEntry]:
    """Writes of these users, but for the Leases that a leader renews."""
    wanted = set(users)
    return [e for e in entries if e.user in wanted and e.is_write and e.resource != "leases"]


def rights_used(user: str, entries: Iterable[AuditEntry]) -> set[Right]:
    """What a user's granted requests needed. An apply that creates needs `create` too."""
    used = set()
    for entry in entries:
        if entry.user != user or not entry.resource or entry.code == FORBIDDEN:
            continue
        used.add((entry.group, entry.resource, entry.verb))
        if entry.verb == "patch" and entry.code == 201:
            used.add((entry.group, entry.resource, "create"))
    return used


def denied(user: str, entries: Iterable[AuditEntry]) -> list[AuditEntry]:
    return [e for e in entries if e.user == user and e.code == FORBIDDEN]
