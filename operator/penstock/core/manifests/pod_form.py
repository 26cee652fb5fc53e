"""Checks that a template, and the pods made of it, have the form that Penstock reads.

The schema of the CRD takes any template, and the API server checks pods only when they are created. Without
this form Penstock cannot make the pods, such as with a list of containers that lacks the engine.
"""

from collections.abc import Iterator
from typing import Any

from penstock.core.formats.strategic_merge import is_keyed
from penstock.core.manifests.model_fetch import OWN_INIT_CONTAINERS
from penstock.core.runtimes.pod_models import URI_ARGUMENT
from penstock.core.spec.history import PinnedPods
from penstock.core.spec.service import ENGINE_CONTAINER, Object

PATH = "spec.template"
# Directives of a strategic merge patch. Penstock only merges lists by their keys, and deletes single entries.
DIRECTIVES = ("$patch", "$retainKeys", "$setElementOrder/", "$deleteFromPrimitiveList/")
# Fields that Penstock reads of a template, which are lists of objects with a name.
NAMED_LISTS = ("containers", "initContainers", "volumes")


def type_violation(template: Any) -> str | None:
    """Sentence about a field of a template that must be an object and is not; None if there is none."""
    for path, value in _objects(template):
        if not isinstance(value, dict):
            return f"{PATH}{path} must be an object: change or remove it"
    return None


def template_form_violation(template: Object) -> str | None:
    """Sentence about a field of a template that Penstock cannot merge; None if there is none."""
    pod = template.get("spec", {})
    for name in NAMED_LISTS:
        if name in pod and not _is_named(pod[name]):
            return f"{PATH}.spec.{name} must be a list of objects with names: change or remove it"
    directive = next(_directives(template, PATH), None)
    if directive is not None:
        return (
            f"{directive} is a directive that is not merged: write the fields, null to remove one, or "
            "$patch: delete and its key for an entry of a list"
        )
    return None


def pods_form_violation(pods: PinnedPods) -> str | None:
    """Sentence about what the pods made of a template lack; None if they lack nothing."""
    for pod in (pods.serve["spec"], pods.preflight):
        for name in ("containers", "volumes"):
            if not _is_named(pod.get(name)):
                return _lacks(f"the list {name}")
        containers = [*pod["containers"], *pod.get("initContainers", ())]
        engine = next((c for c in pod["containers"] if c["name"] == ENGINE_CONTAINER), None)
        if engine is None:
            return _lacks(f"the container {ENGINE_CONTAINER}")
        volumes = {each["name"] for each in pod["volumes"]}
        for container in containers:
            if container["name"] in (ENGINE_CONTAINER, *OWN_INIT_CONTAINERS):
                for lacked in _lacking(container, volumes):
                    return _lacks(f"{lacked} of the container {container['name']}")
    return None


def _objects(template: Any) -> Iterator[tuple[str, Any]]:
    """Path and value of each field that must be an object, outer ones first."""
    yield "", template
    for name in ("metadata", "spec"):
        yield f".{name}", template.get(name, {})
    for name in ("labels", "annotations"):
        yield f".metadata.{name}", template.get("metadata", {}).get(name) or {}


def _directives(value: Any, path: str) -> Iterator[str]:
    """Paths of the directives in a value, except those that delete an entry of a list by its key."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            is_deletion = (
                isinstance(each, dict) and each.get("$patch") == "delete" and len(each) > 1
            )
            rest = {k: v for k, v in each.items() if k != "$patch"} if is_deletion else each
            yield from _directives(rest, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, each in value.items():
            if name.startswith(DIRECTIVES):
                yield f"{path}.{name}"
            yield from _directives(each, f"{path}.{name}")


def _lacking(container: Object, volumes: set[str]) -> Iterator[str]:
    """Names of the parts that one of Penstock's containers lacks, or has in another form."""
    if not isinstance(container.get("image"), str):
        yield "the image"
    resources = container.get("resources", {})
    if not isinstance(resources, dict) or not all(
        isinstance(resources.get(bound, {}), dict) for bound in ("requests", "limits")
    ):
        yield "the resources"
    args = container.get("args", [])
    if container["name"] in OWN_INIT_CONTAINERS and (
        not isinstance(args, list) or len(args) <= URI_ARGUMENT
    ):
        yield "the arguments"
    mounts = container.get("volumeMounts", [])
    if not is_keyed(mounts, "mountPath"):
        yield "the list volumeMounts"
        return
    for mount in mounts:
        name = mount.get("name")
        if not isinstance(name, str) or name not in volumes:
            yield f"the volume {str(name)[:63]}"


def _is_named(value: Any) -> bool:
    return is_keyed(value, "name") and all(isinstance(each.get("name"), str) for each in value)


def _lacks(what: str) -> str:
    return f"{PATH} makes pods without {what}: keep it"
