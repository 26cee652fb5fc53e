"""The revisions of a service, as ControllerRevisions keep them."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from penstock.core.service import ENGINE_CONTAINER, GROUP, REVISION_LABEL, Object
from penstock.core.strategic_merge import merge

# On a ControllerRevision: its pods, in JSON. `data` cannot be changed, so pods that are adopted later
# have no place in it.
PODS_ANNOTATION = f"{GROUP}/pods"
# On a ControllerRevision: "true" once the revision had all of the traffic.
STABLE_ANNOTATION = f"{GROUP}/was-stable"


@dataclass(frozen=True, slots=True)
class PinnedPods:
    """The pods of a revision as it was made: another version of Penstock changes neither.

    serve: the pod template of its Deployments, before cohort and variant. preflight: the pod's spec.
    """

    serve: Object
    preflight: Object

    @classmethod
    def of(cls, text: str | None) -> "PinnedPods | None":
        """Parses the recorded pods; None where there are none, or none that can be read."""
        try:
            said = json.loads(text or "")
            pods = cls(said["serve"], said["preflight"])
            return pods if pods.image and pods.preflight["containers"] else None
        except (ValueError, KeyError, TypeError, StopIteration):
            return None

    def as_text(self) -> str:
        return json.dumps({"serve": self.serve, "preflight": self.preflight}, sort_keys=True)

    @property
    def image(self) -> str:
        """The engine's."""
        containers = self.serve["spec"]["containers"]
        return str(next(c["image"] for c in containers if c["name"] == ENGINE_CONTAINER))


@dataclass(frozen=True, slots=True)
class Revision:
    """number: higher is later. shape: the parts of the spec that make its pods. pods: None where an
    earlier version of Penstock recorded none. was_stable: it had all of the traffic once."""

    name: str
    uid: str
    revision: str
    number: int
    shape: Object
    pods: PinnedPods | None = None
    was_stable: bool = False

    @classmethod
    def of(cls, body: Object) -> "Revision":
        metadata = body["metadata"]
        annotations = metadata.get("annotations", {})
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            revision=metadata.get("labels", {}).get(REVISION_LABEL, ""),
            number=body["revision"],
            shape=body.get("data") or {},
            pods=PinnedPods.of(annotations.get(PODS_ANNOTATION)),
            was_stable=annotations.get(STABLE_ANNOTATION) == "true",
        )


def due(
    known: Collection[Revision],
    revision: str,
    shape: Object,
    pods: PinnedPods,
    *,
    is_latest: bool,
    is_stable: bool,
) -> Revision | None:
    """The entry to write; None when it is there as it should be.

    is_latest: the spec asks for it, so that its number has to be the highest. A revision that comes back
    keeps its shape: what it was made of is not changed afterwards.
    """
    last = max((each.number for each in known), default=0)
    mine = next((each for each in known if each.revision == revision), None)
    if mine is None:
        return Revision("", "", revision, last + 1, shape, pods, is_stable) if is_latest else None
    number = last + 1 if is_latest and mine.number != last else mine.number
    entry = replace(mine, number=number, pods=pods, was_stable=mine.was_stable or is_stable)
    return None if entry == mine else entry


def previous(
    known: Iterable[Revision], current: str | None, serving: str | None = None
) -> Revision | None:
    """What `undo` goes back to: the revision that serves, or else the latest that was stable; not the
    current one. A later number than the serving one's may be of a revision that was stable once and was
    rejected when it was asked for again."""
    candidates = [each for each in known if each.was_stable and each.revision != current]
    return max(candidates, key=lambda each: (each.revision == serving, each.number), default=None)


def stale(known: Iterable[Revision], in_use: Collection[str], limit: int) -> tuple[Revision, ...]:
    """The oldest of those that are not in use, beyond `limit`. The one that `undo` goes back to is the
    last to go: any number of rejected revisions may have come after it."""
    candidates = [each for each in known if each.revision not in in_use]
    way_back = previous(candidates, None)
    spare = sorted(candidates, key=lambda each: (each == way_back, each.number))
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


# That `kubectl rollout restart` uses: other tools show it, and GitOps leaves it alone.
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"


def restart(spec: Object, at: str) -> list[Object]:
    """A JSON patch that makes a new revision of a spec and changes nothing else about its pods."""
    annotations = {"metadata": {"annotations": {RESTARTED_AT: at}}}
    template = merge(spec.get("template", {}), annotations)
    return [{"op": "add", "path": "/spec/template", "value": template}]
