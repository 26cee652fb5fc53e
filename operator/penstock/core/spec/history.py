"""Revision history of a service, stored in ControllerRevisions."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from penstock.core.formats.json_text import parse_json
from penstock.core.formats.strategic_merge import merge
from penstock.core.spec.service import ENGINE_CONTAINER, GROUP, REVISION_LABEL, Object

# On a ControllerRevision: its pods, in JSON. Not in `data`, which is immutable: pods may be adopted
# after the ControllerRevision was created.
PODS_ANNOTATION = f"{GROUP}/pods"
# On a ControllerRevision: "true" once the revision had all of the traffic.
STABLE_ANNOTATION = f"{GROUP}/was-stable"


@dataclass(frozen=True, slots=True)
class PinnedPods:
    """Pod template and preflight of a revision, recorded when it was created.

    An upgrade of Penstock changes neither, so it restarts no engine. serve: the pod template of its
    Deployments, before cohort and variant. preflight: the preflight pod's spec.
    """

    serve: Object
    preflight: Object

    @classmethod
    def of(cls, text: str | None) -> "PinnedPods | None":
        """Parse the recorded pods; None if there are none or they are invalid."""
        try:
            recorded = parse_json(text or "")
            pods = cls(recorded["serve"], recorded["preflight"])
            return pods if pods.image and pods.preflight["containers"] else None
        except (ValueError, KeyError, TypeError, StopIteration):
            return None

    def as_text(self) -> str:
        return json.dumps({"serve": self.serve, "preflight": self.preflight}, sort_keys=True)

    @property
    def image(self) -> str:
        """The engine container's image."""
        containers = self.serve["spec"]["containers"]
        return str(next(c["image"] for c in containers if c["name"] == ENGINE_CONTAINER))


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision in the history."""

    name: str
    uid: str
    revision: str
    number: int  # higher is later
    recorded_fields: Object  # the parts of the spec that determine its pods
    pods: PinnedPods | None = None  # unknown if an earlier version of Penstock created the revision
    was_stable: bool = False  # whether it ever had all of the traffic
    is_orphan: bool = False  # whether a deleted service of the same name left it without an owner

    @classmethod
    def of(cls, body: Object) -> "Revision":
        metadata = body["metadata"]
        annotations = metadata.get("annotations", {})
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            revision=metadata.get("labels", {}).get(REVISION_LABEL, ""),
            number=body["revision"],
            recorded_fields=body.get("data") or {},
            pods=PinnedPods.of(annotations.get(PODS_ANNOTATION)),
            was_stable=annotations.get(STABLE_ANNOTATION) == "true",
        )


def updated_entry(
    known: Collection[Revision],
    revision: str,
    recorded_fields: Object,
    pods: PinnedPods,
    *,
    is_latest: bool,
    is_stable: bool,
) -> Revision | None:
    """The revision's history entry to write; None if the stored one is up to date.

    is_latest: the spec is at this revision, so its number must be the highest. A revision that the
    spec returns to keeps its recorded fields.
    """
    last = max((each.number for each in known), default=0)
    mine = next((each for each in known if each.revision == revision), None)
    if mine is None:
        return (
            Revision("", "", revision, last + 1, recorded_fields, pods, is_stable)
            if is_latest
            else None
        )
    number = last + 1 if is_latest and mine.number != last else mine.number
    was_stable = mine.was_stable or is_stable
    entry = replace(mine, number=number, pods=pods, was_stable=was_stable, is_orphan=False)
    return None if entry == mine else entry


def undo_target(
    known: Iterable[Revision], current: str | None, serving: str | None = None
) -> Revision | None:
    """The revision that `undo` rolls back to: the serving one, else the latest that was stable.

    Never the current one. The status says that the serving one is stable before its record does. A higher
    number than the serving revision's does not mean newer: it may be of a once stable revision that was
    rejected when the spec returned to it.
    """
    candidates = [
        each
        for each in known
        if (each.was_stable or each.revision == serving) and each.revision != current
    ]
    return max(candidates, key=lambda each: (each.revision == serving, each.number), default=None)


def excess_revisions(
    known: Iterable[Revision], in_use: Collection[str], limit: int
) -> tuple[Revision, ...]:
    """Revisions to delete so that `limit` unused ones stay: the oldest first.

    The one that `undo` rolls back to is deleted last, as any number of rejected ones may be newer.
    """
    unused = [each for each in known if each.revision not in in_use]
    target = undo_target(unused, None)
    unused.sort(key=lambda each: (each == target, each.number))
    return tuple(unused[: max(0, len(unused) - limit)])


def changed_paths(before: Object, after: Object) -> tuple[str, ...]:
    """Paths of the fields that differ, such as engine.quantization.method.

    A map that only one side has counts as its fields.
    """
    found: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        inner = [{} if each is None else each for each in (old, new)]
        if any(inner) and all(isinstance(each, dict) for each in inner):
            found += (f"{name}.{path}" for path in changed_paths(*inner))
        elif old != new:
            found.append(name)
    return tuple(found)


def rollback_patch(spec: Object, recorded_fields: Object, names: Collection[str]) -> list[Object]:
    """JSON patch that restores a revision's recorded fields and keeps the rest of the spec.

    names: of all fields of the spec that revisions record.
    """
    patch: list[Object] = []
    for name in names:
        if name in recorded_fields:
            patch.append({"op": "add", "path": f"/spec/{name}", "value": recorded_fields[name]})
        elif name in spec:
            patch.append({"op": "remove", "path": f"/spec/{name}"})
    return patch


# The annotation of `kubectl rollout restart`: other tools display it, and GitOps tools ignore it.
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"


def restart_patch(spec: Object, at: str) -> list[Object]:
    """JSON patch that causes a new revision by an annotation of its pods. at: RFC 3339."""
    annotations = {"metadata": {"annotations": {RESTARTED_AT: at}}}
    template = merge(spec.get("template", {}), annotations)
    return [{"op": "add", "path": "/spec/template", "value": template}]
