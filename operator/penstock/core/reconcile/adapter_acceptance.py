"""Whether a service takes an adapter, and who has the adapter's model name."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from penstock.core.adapters.dedicated import adapter_of
from penstock.core.adapters.resource import AdapterResource
from penstock.core.reconcile.adapter_conditions import Cause
from penstock.core.spec.adapter_sources import is_in_sources
from penstock.core.spec.service import Object
from penstock.core.spec.settings import CUSTOM, PENSTOCK

Key = tuple[str, str]
# (namespace, model name) -> (kind, name) of the object that has the model name.
NameHolders = Mapping[Key, tuple[str, str]]

KIND = "LoraAdapter"

# Thousands of adapters are checked in each pass, and few of them change.
_is_mounted = lru_cache(maxsize=16_384)(is_in_sources)


def name_holders(
    routes: Iterable[Object], services: Iterable[Object], adapters: Iterable[AdapterResource]
) -> NameHolders:
    """Holder of each model name: a route before a service before an adapter, and the older adapter.

    Dedicated pools hold no name.
    """
    found: dict[Key, tuple[str, str]] = {}
    for adapter in adapters:
        found.setdefault((adapter.namespace, adapter.model_name), (KIND, adapter.name))
    for service in services:
        if adapter_of(service):
            continue
        name = service["metadata"]["name"]
        model_name = service["spec"]["model"].get("name") or name
        found[service["metadata"]["namespace"], model_name] = "InferenceService", name
    for route in routes:
        metadata = route["metadata"]
        key = metadata["namespace"], route["spec"]["modelName"]
        found[key] = "ModelRoute", metadata["name"]
    return found


def refusal(
    adapter: AdapterResource,
    service: Object | None,
    sources: tuple[str, ...] | None,
    holders: NameHolders,
    *,
    has_engines: bool = False,
) -> Cause | None:
    """Why an adapter is not accepted; None if it is.

    service: None if it does not exist. sources: URIs of the volumes for adapters that its engines mount;
    None: unknown, because its spec cannot be served. has_engines: whether engines of it take adapters now.
    While a rollout removes the last ones, gateways go on with the adapters that they have.
    """
    if service is None:
        message = f"the namespace has no InferenceService {adapter.service}; create it"
        return Cause("ServiceNotFound", message)
    if owner := adapter_of(service):
        message = (
            f"{adapter.service} is the dedicated pool of the LoraAdapter {owner}, which serves no other "
            "adapter; refer to the service of that adapter"
        )
        return Cause("ServiceDedicated", message)
    cause = _unable(adapter, service)
    if cause is not None and not has_engines:
        return cause
    if cause is None and sources is not None and not _is_mounted(adapter.version.uri, sources):
        message = (
            f"the engines of {adapter.service} do not mount {adapter.version.uri}: add its volume to the "
            f"service's spec.engine.lora.sources (now {', '.join(sources) or 'none'})"
        )
        return Cause("SourceNotMounted", message)
    kind, name = holders.get((adapter.namespace, adapter.model_name), (KIND, adapter.name))
    if (kind, name) != (KIND, adapter.name):
        message = (
            f"the {kind} {name} has the model name {adapter.model_name!r} in this namespace already; set "
            "spec.model.name to another name"
        )
        return Cause("ModelNameInUse", message)
    return None


def _unable(adapter: AdapterResource, service: Object) -> Cause | None:
    """Why engines with the service's spec take no adapters; None if they do."""
    if (service["spec"].get("runtime") or {}).get("type", PENSTOCK) == CUSTOM:
        message = f"{adapter.service} has the runtime Custom, whose engines load no adapters"
        return Cause("RuntimeUnsupported", message)
    if not (service["spec"].get("engine") or {}).get("lora"):
        message = f"{adapter.service} takes no adapters: set its spec.engine.lora"
        return Cause("LoraNotEnabled", message)
    return None
