"""Builds the gateway's routing snapshot from Kubernetes objects."""

from collections.abc import Iterable, Mapping

from penstock.adapters.kube import Object
from penstock.adapters.watch import Key
from penstock.core.claim_order import claim_order
from penstock.core.quantity import parse_duration_s
from penstock.core.route import Match, RouteRule, Shadow
from penstock.core.routing import Endpoint, Side
from penstock.core.rule import Objectives
from penstock.core.service import COHORT_LABEL, ENGINE_PORT_NAME, REVISION_LABEL, SERVICE_LABEL
from penstock.core.status import copies_of
from penstock.core.stickiness import STICKY_BY, StickyBy
from penstock.core.timestamps import parse_timestamp
from penstock.gateway.snapshot import Route, Service, Snapshot


def build(
    services: Iterable[Object], pods: Iterable[Object], routes: Iterable[Object] = ()
) -> Snapshot:
    """Build the routing snapshot from InferenceServices, engine pods and ModelRoutes."""
    engines: dict[Key, list[Object]] = {}
    for pod in pods:
        metadata = pod["metadata"]
        key = metadata["namespace"], metadata["labels"][SERVICE_LABEL]
        engines.setdefault(key, []).append(pod)
    return Snapshot(
        tuple(_service(body, engines) for body in sorted(services, key=_claim_order)),
        tuple(_route(body) for body in sorted(routes, key=_claim_order)),
    )


def _claim_order(body: Object) -> tuple[str, str, str]:
    return claim_order(body["metadata"])


def _route(body: Object) -> Route:
    metadata, spec = body["metadata"], body["spec"]
    return Route(
        namespace=metadata["namespace"],
        name=metadata["name"],
        served_name=spec["modelName"],
        created_s=int(parse_timestamp(metadata["creationTimestamp"])),
        rules=tuple(map(_rule, spec["rules"])),
    )


def _rule(rule: Object) -> RouteRule:
    match = rule.get("match", {})
    return RouteRule(
        match=Match(
            tuple((header["name"], header["value"]) for header in match.get("headers", [])),
            frozenset(match.get("users", [])),
        ),
        backends=tuple((b["service"], b.get("weight", 100)) for b in rule["backends"]),
        sticky_by=_sticky_by(rule),
        sticky_header=rule.get("stickyHeader"),
        shadows=tuple(
            Shadow(s["service"], s.get("revision"), s.get("percent", 100))
            for s in rule.get("shadows", [])
        ),
    )


def _service(body: Object, engines: Mapping[Key, list[Object]]) -> Service:
    metadata, spec, status = body["metadata"], body["spec"], body.get("status", {})
    namespace, name = metadata["namespace"], metadata["name"]
    pods = engines.get((namespace, name), [])
    endpoints = [endpoint for pod in pods if (endpoint := _endpoint(pod)) is not None]
    return Service(
        namespace=namespace,
        name=name,
        served_name=status.get("servedName") or spec["model"].get("servedName") or name,
        created_s=int(parse_timestamp(metadata["creationTimestamp"])),
        weights={
            Side(target["revision"], target.get("cohort", "")): target["weight"]
            for target in status.get("traffic", [])
        },
        endpoints=tuple(sorted(endpoints, key=lambda e: e.pod)),
        objectives=_objectives(spec.get("objectives")),
        sides={_name(pod): _side(pod) for pod in pods},
        sticky_by=_sticky_by(spec.get("rollout", {}).get("canary", {})),
        generation=status.get("trafficGeneration", 0),
        copies=copies_of(status),
        tenant_header=spec.get("rollout", {}).get("canary", {}).get("tenantHeader", ""),
    )


def _sticky_by(settings: Object) -> StickyBy:
    """A word that this gateway does not know keeps nothing."""
    wanted = settings.get("stickyBy", "None")
    return next((by for by in STICKY_BY if by == wanted), "None")


def _objectives(wanted: Object | None) -> Objectives | None:
    if wanted is None:
        return None
    return Objectives(
        ttft_s=parse_duration_s(wanted["ttft"]),
        tpot_s=parse_duration_s(wanted["tpot"]),
        attainment=wanted["attainment"],
    )


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _side(pod: Object) -> Side:
    labels = pod["metadata"]["labels"]
    return Side(labels.get(REVISION_LABEL, ""), labels.get(COHORT_LABEL, ""))


def _endpoint(pod: Object) -> Endpoint | None:
    """None while the pod takes no new requests."""
    metadata, status = pod["metadata"], pod.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
    ip, port = status.get("podIP"), _http_port(pod)
    if conditions.get("Ready") != "True" or "deletionTimestamp" in metadata:
        return None
    if not ip or port is None:
        return None
    host = f"[{ip}]" if ":" in ip else ip
    side = _side(pod)
    return Endpoint(
        pod=_name(pod),
        address=f"{host}:{port}",
        revision=side.revision,
        cohort=side.cohort,
    )


def _http_port(pod: Object) -> int | None:
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", []):
            if port.get("name") == ENGINE_PORT_NAME:
                return int(port["containerPort"])
    return None
