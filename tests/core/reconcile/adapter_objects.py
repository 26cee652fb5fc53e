"""A LoraAdapter `sql`, as a resource and as an object of the API server."""

from typing import Any

from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.adapters.resource import AdapterResource
from penstock.core.spec.service import Object

NOW, LATER = "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"
SQL = AdapterResource(
    "team", "sql", "1", 3, "2026-01-01T00:00:00Z", "chat", "chat-sql",
    AdapterVersion("sql", "pvc://adapters/sql", Placement("All")),
)  # fmt: skip


def adapter(name: str, created: str = NOW, **status: Any) -> Object:
    spec = {"serviceRef": {"name": "chat"}, "model": {"uri": "pvc://a", "name": "chat-sql"}}
    metadata = {"namespace": "team", "name": name, "creationTimestamp": created}
    return {"metadata": metadata, "spec": spec, "status": status}
