"""Parts of engine pods and preflights that fetch models: volumes, init containers, and the cache's holder.

    engine pod   init containers fetch-model, fetch-draft-model -> engine (and hold-model, with a cache)
    preflight    reads the headers of the same models into volumes of its own

A revision's engines fetch what its preflight found: `with_resolved_uris` writes that into their arguments.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from penstock.core.formats.strategic_merge import merge
from penstock.core.manifests import restricted
from penstock.core.manifests.own_container import POD_IP, own_container
from penstock.core.observed.preflight import ResolvedModel
from penstock.core.runtimes.paths import ADAPTER_CACHE_MOUNT, MODEL_CACHE_MOUNT, MODEL_SECRET_MOUNT
from penstock.core.runtimes.pod_models import (
    CLAIM_CACHE_FLAG,
    FETCH_CONTAINERS,
    NODE_CACHE_FLAG,
    URI_ARGUMENT,
    as_argument,
    fetch_args,
    fetched_models,
    has_cache,
    hold_args,
    reads_node_cache,
)
from penstock.core.spec.adapter_sources import reads_adapters
from penstock.core.spec.service import (
    ENGINE_CONTAINER,
    MODEL_CACHE_VOLUME,
    MODEL_SECRET_VOLUME,
    Object,
    ServiceSpec,
)

HOLD_CONTAINER = "hold-model"
OWN_INIT_CONTAINERS = frozenset(FETCH_CONTAINERS.values())
COMMAND = ["penstock-engine"]
# The holder sleeps between renewals of a lease. Requests equal limits, as in pods of class Guaranteed.
HOLD_RESOURCES: Object = {key: {"cpu": "20m", "memory": "64Mi"} for key in ("requests", "limits")}
# Resources of an engine that init containers request too. Not accelerators, of which none may be free.
SHARED_RESOURCES = ("cpu", "memory")
# Resource of a node's disk, and how much of it a container that fetches requests, in sizes of its model:
# markers, and parts of files that are fetched again, take some more.
STORAGE, STORAGE_FACTOR = "ephemeral-storage", 1.05
# The same for a model in archives, which are kept until all is unpacked. Weights shrink by a third at most.
ARCHIVE_STORAGE_FACTOR = 2.5
# Group of the files in a cache, which all containers run with: that of the user of restricted.POD.
CACHE_GROUP = restricted.POD["runAsUser"]


def fetch_models(pod: Object, spec: ServiceSpec, image: str) -> None:
    """Add to an engine's pod what fetches its models, and the cache with its adapters.

    image: of the program that fetches.
    """
    models = fetched_models(spec)
    if reads_adapters(spec):
        mount_cache(pod, spec, ADAPTER_CACHE_MOUNT, read_only=True)
    if not models:
        return
    engine = _engine_of(pod)
    for model in models:
        pod["volumes"].append({"name": model.volume, "emptyDir": {}})
        engine["volumeMounts"].append(_mount(model.volume, model.mount, read_only=True))
    if spec.model_secret is not None:
        _add_secret(pod, spec.model_secret)
    pod["initContainers"] = [
        own_container(model.container, image, COMMAND, fetch_args(spec, model))
        | {
            "env": [deepcopy(POD_IP), *_source_variables(spec)],
            "resources": engine_share(engine["resources"]),
            "volumeMounts": [
                *_own_mounts(spec),
                _mount(model.volume, model.mount, read_only=False),
            ],
        }
        for model in models
    ]
    if has_cache(spec):
        _add_cache(pod, spec, image)


def read_headers(pod: Object, spec: ServiceSpec) -> None:
    """Add to a preflight the volumes into which it reads the headers of models that are fetched."""
    checker = _engine_of(pod)
    for model in fetched_models(spec):
        pod["volumes"].append({"name": model.volume, "emptyDir": {}})
        checker["volumeMounts"].append(_mount(model.volume, model.mount, read_only=False))
    if fetched_models(spec):
        add_access(pod, spec, spec.model_secret)


def with_template_fields(pod: Object, fields: Object) -> None:
    """Add fields of the user's template, such as variables, to the containers that fetch."""
    own = {name: value for name, value in fields.items() if name != "name"}
    if "initContainers" in pod:
        pod["initContainers"] = [
            merge(each, own) if _is_own(each) else each for each in pod["initContainers"]
        ]


def with_engine_share(pod: Object, resources: Object) -> None:
    """Set the CPU and memory of containers that fetch to those of an engine. resources: of the engine."""
    for container in pod.get("initContainers", ()):
        if _is_own(container):
            storage = container.get("resources", {}).get("requests", {}).get(STORAGE)
            container["resources"] = engine_share(resources)
            if storage is not None:
                container.setdefault("resources", {}).setdefault("requests", {})[STORAGE] = storage


def with_resolved_uris(template: Object, models: Mapping[str, ResolvedModel]) -> Object:
    """A copy of a pod template in which resolved URIs replace those of the spec.

    models: that preflights resolved, by URI in the spec. Containers that have a resolved URI stay unchanged.
    """
    found = deepcopy(template)
    for container in found["spec"].get("initContainers", ()):
        model = models.get(_uri_of(container))
        if not _is_own(container) or model is None:
            continue
        container["args"][URI_ARGUMENT] = as_argument(model.resolved_uri)
        if not _has_cache(container):
            requests = container.setdefault("resources", {}).setdefault("requests", {})
            factor = ARCHIVE_STORAGE_FACTOR if model.is_archive else STORAGE_FACTOR
            requests[STORAGE] = str(int(factor * model.total_bytes))
    return found


def uris_of(template: Object) -> dict[str, str]:
    """The URIs that containers of a pod template fetch, by the name of the container."""
    return {
        container["name"]: _uri_of(container)
        for container in template["spec"].get("initContainers", ())
        if _is_own(container)
    }


def engine_share(resources: Object) -> Object:
    """The resources of a container that runs before an engine: they add nothing to those of the pod."""
    return {
        bound: {
            name: resources[bound][name] for name in SHARED_RESOURCES if name in resources[bound]
        }
        for bound in ("requests", "limits")
        if bound in resources
    }


def mount_cache(pod: Object, spec: ServiceSpec, path: str, *, read_only: bool) -> None:
    """Mount the service's cache in the container `engine` of a pod, which gets the group of a claim.

    path: in the container. Where it is mounted twice, it is one volume.
    """
    volume: Object = {"name": MODEL_CACHE_VOLUME, **_cache_source(spec)}
    if volume not in pod["volumes"]:
        pod["volumes"].append(volume)
    if not reads_node_cache(spec):
        pod["securityContext"] |= {
            "fsGroup": CACHE_GROUP,
            "fsGroupChangePolicy": "OnRootMismatch",
        }
    _engine_of(pod)["volumeMounts"].append(_mount(MODEL_CACHE_VOLUME, path, read_only=read_only))


def add_access(pod: Object, spec: ServiceSpec, secret: str | None) -> None:
    """Give the container `engine` of a pod the credentials of a source, and the operator's variables.

    secret: name of the Secret with the credentials; None: there is none.
    """
    engine = _engine_of(pod)
    if secret is not None:
        _add_secret(pod, secret)
        engine["volumeMounts"].append(
            _mount(MODEL_SECRET_VOLUME, MODEL_SECRET_MOUNT, read_only=True)
        )
    engine["env"] += _source_variables(spec)


def _cache_source(spec: ServiceSpec) -> Object:
    """Volume source of the service's cache. A node without Penstock's cache gets an empty folder."""
    if reads_node_cache(spec):
        return {"hostPath": {"path": spec.node_cache_path, "type": "DirectoryOrCreate"}}
    return {"persistentVolumeClaim": {"claimName": spec.model_cache_claim}}


def _cache_mount(spec: ServiceSpec) -> Object:
    """Mount of the cache in a container that fetches or holds; read-only for the cache of a node."""
    return _mount(MODEL_CACHE_VOLUME, MODEL_CACHE_MOUNT, read_only=reads_node_cache(spec))


def _add_cache(pod: Object, spec: ServiceSpec, image: str) -> None:
    """Mount the cache where links lead to it, and add the container that keeps its models from eviction."""
    models = fetched_models(spec)
    mount_cache(pod, spec, MODEL_CACHE_MOUNT, read_only=True)
    mounts = [_mount(model.volume, model.mount, read_only=True) for model in models]
    mounts.append(_cache_mount(spec))
    holder = own_container(HOLD_CONTAINER, image, COMMAND, hold_args(spec, models))
    pod["containers"].append(
        holder | {"resources": deepcopy(HOLD_RESOURCES), "volumeMounts": mounts}
    )


def _add_secret(pod: Object, secret: str) -> None:
    source = {"secret": {"secretName": secret, "defaultMode": 0o440}}
    pod["volumes"].append({"name": MODEL_SECRET_VOLUME, **source})


def _source_variables(spec: ServiceSpec) -> list[Object]:
    return [
        {"name": name, "value": as_argument(value)} for name, value in spec.source_variables.items()
    ]


def _own_mounts(spec: ServiceSpec) -> list[Object]:
    mounts: list[Object] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - the pod's own
    if spec.model_secret is not None:
        mounts.append(_mount(MODEL_SECRET_VOLUME, MODEL_SECRET_MOUNT, read_only=True))
    if has_cache(spec):
        mounts.append(_cache_mount(spec))
    return mounts


def _mount(name: str, path: str, *, read_only: bool) -> Object:
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def _is_own(container: Any) -> bool:
    return isinstance(container, dict) and container.get("name") in OWN_INIT_CONTAINERS


def _engine_of(pod: Object) -> Object:
    found: Object = next(each for each in pod["containers"] if each["name"] == ENGINE_CONTAINER)
    return found


def _uri_of(container: Object) -> str:
    """The URI in the arguments of a container that fetches; empty if it has none."""
    args: Any = container.get("args")
    is_own = isinstance(args, list) and len(args) > URI_ARGUMENT
    return str(args[URI_ARGUMENT]).replace("$$", "$") if is_own else ""


def _has_cache(container: Object) -> bool:
    flags = (f"{CLAIM_CACHE_FLAG}=", f"{NODE_CACHE_FLAG}=")
    return any(str(each).startswith(flags) for each in container["args"])
