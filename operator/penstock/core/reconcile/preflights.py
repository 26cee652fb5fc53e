"""Plans the preflights of a revision: one for each variant on which it checks something else."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.core.manifests import engine as manifests
from penstock.core.manifests.placement import with_accelerator_memory
from penstock.core.observed.accelerator_memory import (
    Source,
    claimed_bytes,
    mig_bytes,
    smallest_bytes,
    source_of,
)
from penstock.core.observed.children import ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.preflight import preflight_result
from penstock.core.spec.history import PinnedPods
from penstock.core.spec.service import TEMPLATE_HASH, VARIANT_LABEL, Object, ServiceSpec
from penstock.core.spec.settings import PENSTOCK


@dataclass(frozen=True, slots=True)
class Preflights:
    """The preflights of a revision. is_passed: whether all of them passed, so that it may have engines.

    create: pods to create. larger: pods to create in place of forbidden ones, by the names of these.
    outdated: pods to delete, as a variant was changed or removed since. unread: kinds of objects that were
    not read and on which the pods to create depend.
    """

    is_passed: bool
    create: tuple[Object, ...] = ()
    larger: Mapping[str, Object] = field(default_factory=dict)
    outdated: tuple[ObservedPod, ...] = ()
    unread: frozenset[Source] = frozenset()


def plan_preflights(
    spec: ServiceSpec, observed: ObservedState, revision: str, pods: PinnedPods
) -> Preflights:
    """Plan the preflights of a revision without engines. pods: its pod templates."""
    known = [*observed.preflights(revision)]
    create, larger, outdated, unread = [], {}, [], set()
    is_passed = True
    for variant, placed, body in _checks(spec, revision, pods):
        pod = _existing(body, known)
        if pod is None:
            source = _unknown_memory(placed)
            if source is not None and source not in observed.devices:
                unread.add(source)
            create.append(with_accelerator_memory(body, _memory_bytes(placed, body, observed)))
            engine = manifests.deployment(placed, revision, pods, variant=variant)
            larger[body["metadata"]["name"]] = manifests.preflight_with_engine_resources(
                create[-1], engine
            )
            is_passed = False
            continue
        known.remove(pod)
        verdict = preflight_result(pod)
        if verdict is not None and _is_outdated(pod, body):
            outdated.append(pod)
        is_passed = is_passed and verdict is not None and verdict.ok
    outdated += known  # of variants that were removed, or are not checked apart any more
    is_passed = is_passed and not outdated
    return Preflights(is_passed, tuple(create), larger, tuple(outdated), frozenset(unread))


def _checks(
    spec: ServiceSpec, revision: str, pods: PinnedPods
) -> Iterator[tuple[str, ServiceSpec, Object]]:
    """The preflights that the revision needs, each with its variant and the service as placed on it.

    The only one of a service is not about a variant. The first one is named as an only one.
    """
    checked = _checked_variants(spec)
    is_apart = len(checked) > 1
    for number, (variant, placed) in enumerate(checked.items()):
        label = variant if is_apart else ""
        body = manifests.preflight(placed, revision, pods, variant, label, is_first=number == 0)
        yield variant, placed, body


def _existing(body: Object, known: Sequence[ObservedPod]) -> ObservedPod | None:
    """The pod that makes this check; else the one with its name, from before variants were changed."""
    metadata = body["metadata"]
    label = metadata["labels"].get(VARIANT_LABEL, "")
    same = [pod for pod in known if pod.variant == label]
    same += [pod for pod in known if pod.name == metadata["name"]]
    return next(iter(same), None)


def _checked_variants(spec: ServiceSpec) -> dict[str, ServiceSpec]:
    """The first of all variants with equal inputs of the check, as placed on it, by name."""
    found: dict[str, ServiceSpec] = {}
    seen: list[Any] = []
    for variant, placed in spec.placed.items():
        inputs = _inputs(placed)
        if inputs not in seen:
            seen.append(inputs)
            found[variant] = placed
    return found


def _inputs(placed: ServiceSpec) -> Any:
    """Inputs of the check of a variant; None for other runtimes than Penstock, which have only files."""
    if not _checks_memory(placed):
        return None
    pod = placed.template.get("spec", {}) if _unknown_memory(placed) == "nodes" else {}
    nodes = {name: pod.get(name) for name in ("nodeSelector", "affinity", "tolerations")}
    return placed.resources.manifest(), placed.accelerator_memory_bytes, nodes


def _checks_memory(placed: ServiceSpec) -> bool:
    return bool(placed.settings.get("runtime.type", PENSTOCK) == PENSTOCK)


def _unknown_memory(placed: ServiceSpec) -> Source | None:
    """Kind of the objects that say the memory of the accelerators; None if it is known without them."""
    resources = placed.resources
    if not _checks_memory(placed) or placed.accelerator_memory_bytes or mig_bytes(resources):
        return None
    return source_of(resources)


def _memory_bytes(placed: ServiceSpec, body: Object, observed: ObservedState) -> int | None:
    """Memory of each accelerator of the pod; None if it is unknown, or not checked."""
    if not _checks_memory(placed):
        return None
    resources, source = placed.resources, _unknown_memory(placed)
    if source == "nodes":
        return smallest_bytes(body["spec"], resources, observed.devices.get(source, ()))
    if source == "resourceslices":
        return claimed_bytes(observed.devices.get(source, ()))
    return placed.accelerator_memory_bytes or mig_bytes(resources)


def _is_outdated(pod: ObservedPod, wanted: Object) -> bool:
    return pod.template_hash not in ("", wanted["metadata"]["annotations"][TEMPLATE_HASH])
