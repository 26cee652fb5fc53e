"""The revisions of a service, as ControllerRevisions keep them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from penstock.core.service import REVISION_LABEL, Object


@dataclass(frozen=True, slots=True)
class Revision:
    """number: higher is later. shape: the parts of the spec that make its pods."""

    name: str
    uid: str
    revision: str
    number: int
    shape: Object

    @classmethod
    def of(cls, body: Object) -> "Revision":
        metadata = body["metadata"]
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            revision=metadata.get("labels", {}).get(REVISION_LABEL, ""),
            number=body["revision"],
            shape=body.get("data") or {},
        )


def due(known: Collection[Revision], revision: str, shape: Object) -> Revision | None:
    """The entry to write so that `revision` is the latest; None when it is.

    A revision that comes back keeps its shape: what it was made of is not changed afterwards.
    """
    last = max((each.number for each in known), default=0)
    mine = next((each for each in known if each.revision == revision), None)
    if mine is None:
        return Revision("", "", revision, last + 1, shape)
    return None if mine.number == last else replace(mine, number=last + 1)


def stale(known: Iterable[Revision], in_use: Collection[str], limit: int) -> tuple[Revision, ...]:
    """The oldest of those that are not in use, beyond `limit`."""
    spare = sorted((e for e in known if e.revision not in in_use), key=lambda e: e.number)
    return tuple(spare[: max(0, len(spare) - limit)])


def changes(before: Object, after: Object) -> tuple[str, ...]:
    """Paths of the fields that differ, such as engine.maxModelLen."""
    found: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found += (f"{name}.{path}" for path in changes(old, new))
        elif old != new:
            found.append(name)
    return tuple(found)


def way_back(spec: Object, shape: Object, shaping: Collection[str]) -> list[Object]:
    """A JSON patch that gives a spec this shape and leaves the rest of it as it is."""
    patch: list[Object] = []
    for name in shaping:
        if name in shape:
            patch.append({"op": "add", "path": f"/spec/{name}", "value": shape[name]})
        elif name in spec:
            patch.append({"op": "remove", "path": f"/spec/{name}"})
    return patch
