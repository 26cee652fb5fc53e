"""Whether a service takes an adapter, and who has the adapter's model name."""

from collections.abc import Iterable
from functools import lru_cache

from penstock.core.adapters.dedicated import adapter_of
from penstock.core.adapters.resource import AdapterResource
from penstock.core.observed.accepted_spec import spec_in_use
from penstock.core.observed.name_claims import (
    MODEL_NAME_IN_USE,
    Standing,
    alias_claims,
    route_claim,
    with_next_status,
)
from penstock.core.observed.name_index import NameIndex
from penstock.core.reconcile.adapter_state import Cause
from penstock.core.routing.route import ADAPTER
from penstock.core.spec.adapter_sources import is_in_sources
from penstock.core.spec.service import NODE_CACHE, Object
from penstock.core.spec.settings import CUSTOM, PENSTOCK

Key = tuple[str, str]
# Thousands of adapters are checked in each pass, and few of them change.
_is_mounted = lru_cache(maxsize=16_384)(is_in_sources)


def adapters_of_routes(routes: Iterable[Object], names: NameIndex) -> set[Key]:
    """The adapters that a route leads to, whatever their model name. Routes without a name lead nowhere."""
    found: set[Key] = set()
    for route in routes:
        namespace = route["metadata"]["namespace"]
        keys = [claim.key for claim in (route_claim(route), *alias_claims(route))]
        claims = [claim for key in keys if (claim := names.get(key)) is not None]
        if any(not claim.precedence.yields for claim in claims):
            refs = (ref for rule in route["spec"]["rules"] for ref in rule["backendRefs"])
            found |= {(namespace, ref["name"]) for ref in refs if ref.get("kind") == ADAPTER}
    return found


def refusal(
    adapter: AdapterResource,
    service: Object | None,
    sources: tuple[str, ...] | None,
    names: NameIndex,
    *,
    has_cache: bool = False,
    has_engines: bool = False,
    is_routed: bool = False,
) -> Cause | None:
    """Why an adapter is not accepted; None if it is.

    service: None if it does not exist. sources: URIs of the volumes for adapters that its engines mount;
    None: unknown, because its spec cannot be served. has_cache: whether they mount a cache for adapters that
    are fetched. has_engines: whether engines of it take adapters now.
    While a rollout removes the last ones, gateways go on with the adapters that they have. is_routed: whether
    a route leads to it, so that it needs no model name of its own.
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
    if cause is None and sources is not None:
        cause = _unreadable(adapter, service, sources, has_cache=has_cache)
        if cause is not None:
            return cause
    return None if is_routed else _name_refusal(adapter, names)


def _unreadable(
    adapter: AdapterResource, service: Object, sources: tuple[str, ...], *, has_cache: bool
) -> Cause | None:
    """Why engines of the service cannot read the version; None if they can. Arguments: those of `refusal`."""
    if adapter.version.is_fetched:
        if has_cache:
            return None
        cache = (spec_in_use(service).get("model") or {}).get("cache") or {}
        in_place = " in place of spec.model.cache.type Node, as caches of nodes have no adapters"
        message = (
            f"{adapter.service} has no cache for {adapter.version.uri}: set spec.model.cache.claimName of "
            "the service to a claim that its engines can share"
        ) + (in_place if cache.get("type") == NODE_CACHE else "")
        return Cause("CacheRequired", message)
    if _is_mounted(adapter.version.uri, sources):
        return None
    message = (
        f"the engines of {adapter.service} do not mount {adapter.version.uri}: add its volume to the "
        f"service's spec.engine.lora.sources (now {', '.join(sources) or 'none'})"
    )
    return Cause("SourceNotMounted", message)


def _name_refusal(adapter: AdapterResource, names: NameIndex) -> Cause | None:
    """Refusal of an adapter whose model name another object of the namespace has; None if none has it."""
    own = names.get((ADAPTER, *adapter.key))
    if own is None:
        return None
    holder = names.holder(own)
    if holder.key == own.key:
        return None
    message = (
        f"the {holder.kind} {holder.name} has the model name {adapter.model_name!r} in this namespace "
        "already; set spec.model.name to another name"
    )
    return Cause(MODEL_NAME_IN_USE, message)


def settle_name(
    adapter: Key, refusal: Cause | None, names: NameIndex, *, can_answer: bool
) -> str | None:
    """Decide the short name of an adapter by its next status.

    refusal: why the adapter is not accepted; None if it is. can_answer: whether the status has a version that
    gets the traffic, and an engine has read it. Returns why the name leads to another namespace; empty if it
    does not; None if only the next pass can decide it.
    """
    claim = names.get((ADAPTER, *adapter))
    if claim is None:
        return ""
    if not names.record_holder(claim):
        return None
    yields = refusal is not None and refusal.reason == MODEL_NAME_IN_USE
    standing = Standing.PENDING if refusal is None or yields else Standing.REFUSED
    standing = Standing.ESTABLISHED if can_answer else standing
    return names.settle(with_next_status(claim, claim.model_name, standing), yields=yields)


def _unable(adapter: AdapterResource, service: Object) -> Cause | None:
    """Why engines with the service's accepted spec take no adapters; None if they do."""
    spec = spec_in_use(service)
    if (spec.get("runtime") or {}).get("type", PENSTOCK) == CUSTOM:
        message = f"{adapter.service} has the runtime Custom, whose engines load no adapters"
        return Cause("RuntimeUnsupported", message)
    if not (spec.get("engine") or {}).get("lora"):
        message = f"{adapter.service} takes no adapters: set its spec.engine.lora"
        return Cause("LoraNotEnabled", message)
    return None
