"""Manifest of the pod that fetches one version of an adapter into the cache of its service."""

import hashlib
import json
from collections.abc import Iterable
from copy import deepcopy

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.dedicated import ADAPTER_LABEL
from penstock.core.adapters.resource import AdapterResource
from penstock.core.formats.strategic_merge import merge
from penstock.core.manifests.engine import program_overrides
from penstock.core.manifests.model_fetch import COMMAND, add_access, mount_cache
from penstock.core.manifests.own_container import own_container, own_pod
from penstock.core.manifests.stored_record import adapter_owner
from penstock.core.runtimes.paths import ADAPTER_CACHE_MOUNT
from penstock.core.runtimes.pod_models import (
    TERMINATION_LOG,
    as_argument,
    cache_args,
    secret_args,
)
from penstock.core.spec.service import (
    ADAPTER_FETCH,
    ENGINE_CONTAINER,
    MANAGED_BY,
    MANAGED_LABEL,
    REVISION_LABEL,
    ROLE_LABEL,
    Object,
    ServiceSpec,
)

# A fetch from the hub has 80 MiB in memory; one from an object store may have 8 parts of 16 MiB besides. Both
# limits are set, as a quota may count them and then refuses pods without.
RESOURCES: Object = {
    "requests": {"cpu": "100m", "memory": "512Mi"},
    "limits": {"cpu": "1", "memory": "512Mi"},
}


def adapter_fetch_name(adapter: AdapterResource, version: AdapterVersion, claim: str) -> str:
    """Name of the pod. Another source, Secret or claim needs another fetch, and so another pod."""
    inputs = json.dumps([version.uri, adapter.secret, claim])
    return f"{adapter.name}-fetch-{hashlib.sha256(inputs.encode()).hexdigest()[:8]}"


def adapter_fetch_pod(
    adapter: AdapterResource,
    version: AdapterVersion,
    source: str,
    spec: ServiceSpec,
    kept: Iterable[str],
    image: str,
) -> Object:
    """The pod. It runs once, and reports the outcome in its termination message.

    source: what is fetched: the version's URI, or what that meant when it was fetched before. spec: of the
    adapter's service, with a cache. kept: revisions of the adapter whose folders stay. The pod
    has no label of a service: pods with it are its engines, preflights and evaluations.
    """
    args = _args(adapter, version, source, spec, kept)
    # The container has the name of the engine's: the user's template adds variables and mounts to it by name.
    container = own_container(ENGINE_CONTAINER, image, COMMAND, args)
    pod = own_pod(container | {"env": [], "resources": deepcopy(RESOURCES)})  # it serves no metrics
    mount_cache(pod, spec, ADAPTER_CACHE_MOUNT, read_only=False)
    add_access(pod, spec, adapter.secret)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": adapter_fetch_name(adapter, version, spec.model_cache_claim or ""),
            "namespace": adapter.namespace,
            "labels": {
                MANAGED_LABEL: MANAGED_BY,
                ROLE_LABEL: ADAPTER_FETCH,
                ADAPTER_LABEL: adapter.name,
                REVISION_LABEL: version.revision,
            },
            "ownerReferences": [adapter_owner(adapter).reference],
        },
        "spec": merge(pod, program_overrides(spec)) | {"restartPolicy": "Never"},
    }


def _args(
    adapter: AdapterResource,
    version: AdapterVersion,
    source: str,
    spec: ServiceSpec,
    kept: Iterable[str],
) -> list[str]:
    args = ["fetch", as_argument(source), f"--into={version.engine_path}"]
    args += [*secret_args(adapter.secret), *cache_args(spec, ADAPTER_CACHE_MOUNT)]
    args += [f"--keep={revision}" for revision in kept]
    return [*args, f"--termination-log={TERMINATION_LOG}"]
