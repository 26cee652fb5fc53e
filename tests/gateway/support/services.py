"""A service of a snapshot, whose endpoints are fake engines."""

from collections.abc import Mapping

from tests.gateway.support.engine_stub import Engine

from penstock.core.routing.pick import Side
from penstock.core.spec.objectives import Objectives
from penstock.gateway.snapshots.snapshot import Service


def service(
    *engines: Engine,
    name: str = "chat",
    namespace: str = "default",
    weights: Mapping[str, int] | None = None,
    served_name: str | None = None,
    created_s: int = 0,
    objectives: Objectives | None = None,
) -> Service:
    return Service(
        namespace=namespace,
        name=name,
        served_name=served_name or name,
        created_s=created_s,
        weights={Side(revision): weight for revision, weight in (weights or {"r1": 100}).items()},
        endpoints=tuple(engine.endpoint() for engine in engines),
        objectives=objectives,
        sides={f"default/{engine.name}": Side(engine.revision) for engine in engines},
    )
