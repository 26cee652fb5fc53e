"""Values at the edges: the API server treats them in our kinds as it does in those of Kubernetes.

Where Kubernetes has the field, the value is also sent in a Deployment or a Service, and both answers have
to be the same. Elsewhere the table has the answer that the format's specification demands.
"""

from typing import Any

import pytest

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import (
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    MODEL_ROUTES,
    SERVICES,
)
from penstock.errors import Rejected

pytestmark = pytest.mark.cluster

Spec = dict[str, Any]
GROUP = "serving.penstock.dev/v1alpha1"
OBJECTIVES = {"ttft": "2s"}


def service(name: str = "edge", **spec: Any) -> Spec:
    return {
        "apiVersion": GROUP,
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"model": {"uri": "pvc://models/tiny"}} | spec,
    }


def deployment(pod: Spec | None = None, container: Spec | None = None, **spec: Any) -> Spec:
    labels = {"app": "edge"}
    main = {"name": "main", "image": "image"} | (container or {})
    template = {"metadata": {"labels": labels}, "spec": {"containers": [main]} | (pod or {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "edge"},
        "spec": {"selector": {"matchLabels": labels}, "template": template} | spec,
    }


def canary(**settings: Any) -> Spec:
    return service(rollout={"strategy": "Canary", "canary": settings})


def evaluation(env: Any) -> Spec:
    return canary(evaluation={"image": "image", "env": env})


def variant(**fields: Any) -> Spec:
    one = {"name": "a", "pricePerHour": "1"} | fields
    return service(objectives=OBJECTIVES, variants=[one])


def variants(*names: Any) -> Spec:
    made = [{"name": name, "pricePerHour": "1"} for name in names]
    return service(objectives=OBJECTIVES, variants=made)


def claims(*names: str) -> list[Spec]:
    return [{"name": name} for name in names]


def resources(value: Any) -> tuple[Spec, Spec]:
    """A value of resources, in both kinds. Claims are those of the pod."""
    pod: Spec = {}
    if isinstance(value, dict) and value.get("claims"):
        names = dict.fromkeys(claim.get("name") for claim in value["claims"])
        pod = {"resourceClaims": [{"name": n, "resourceClaimTemplateName": "t"} for n in names]}
    ours = service(resources=value)
    if pod:
        ours["spec"]["template"] = {"spec": pod}
    return ours, deployment(pod=pod, container={"resources": value})


def limit(name: str, value: Any) -> tuple[Spec, Spec]:
    return resources({"limits": {name: value}})


def rolling(**value: Any) -> tuple[Spec, Spec]:
    ours = service(rollout={"strategy": "Rolling", "rolling": value})
    return ours, deployment(strategy={"type": "RollingUpdate", "rollingUpdate": value})


def env(*value: Any) -> tuple[Spec, Spec]:
    return evaluation(list(value)), deployment(container={"env": list(value)})


def toleration(**value: Any) -> tuple[Spec, Spec]:
    return variant(tolerations=[value]), deployment(pod={"tolerations": [value]})


def node(key: Any, value: Any) -> tuple[Spec, Spec]:
    return variant(nodeSelector={key: value}), deployment(pod={"nodeSelector": {key: value}})


def pod_label(key: Any, value: Any) -> tuple[Spec, Spec]:
    return pod_metadata("labels", key, value)


def annotation(key: Any, value: Any) -> tuple[Spec, Spec]:
    return pod_metadata("annotations", key, value)


def pod_metadata(field: str, key: Any, value: Any) -> tuple[Spec, Spec]:
    ours, core = service(template={"metadata": {field: {key: value}}}), deployment()
    core["spec"]["template"]["metadata"].setdefault(field, {})[key] = value
    return ours, core


def replicas(value: Any) -> tuple[Spec, Spec]:
    return service(scaling={"mode": "External"}, replicas=value), deployment(replicas=value)


def grace(value: Any) -> tuple[Spec, Spec]:
    pod = {"terminationGracePeriodSeconds": value}
    return service(terminationGracePeriodSeconds=value), deployment(pod=pod)


FROM_SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}

# A manifest of ours, and the one of Kubernetes with the same value.
TWINS = {
    # Quantities
    "whole CPUs": limit("cpu", "2"),
    "CPUs as a number": limit("cpu", 2),
    "CPUs as a float": limit("cpu", 1.5),
    "CPUs with a fraction": limit("cpu", "1.5"),
    "millicores": limit("cpu", "500m"),
    "nanocores": limit("cpu", "100n"),
    "CPUs without a leading 0": limit("cpu", ".5"),
    "CPUs with a point at the end": limit("cpu", "5."),
    "CPUs with a plus": limit("cpu", "+1"),
    "negative CPUs": limit("cpu", "-1"),
    "CPUs as a negative number": limit("cpu", -1),
    "no CPUs": limit("cpu", "0"),
    "CPUs in words": limit("cpu", "two"),
    "empty CPUs": limit("cpu", ""),
    "CPUs with a space": limit("cpu", "2 "),
    "CPUs as a list": limit("cpu", ["2"]),
    "CPUs as a boolean": limit("cpu", True),
    "CPUs of null": limit("cpu", None),
    "memory in binary units": limit("memory", "2Gi"),
    "memory in decimal units": limit("memory", "2G"),
    "memory with an exponent": limit("memory", "1e9"),
    "memory with a capital exponent": limit("memory", "1E9"),
    "memory as a number": limit("memory", 2147483648),
    "memory with a fraction of a unit": limit("memory", "1.5Gi"),
    "memory in words of people": limit("memory", "2 GB"),
    "memory in lower case": limit("memory", "2gi"),
    "memory in exbibytes": limit("memory", "7Ei"),
    "a fraction of a byte": limit("ephemeral-storage", "500m"),
    "a number of 33 digits": limit("ephemeral-storage", "1" * 33),
    "a resource without a domain": limit("gpu", 1),
    "whole accelerators": limit("nvidia.com/gpu", "2"),
    "1000m accelerators": limit("nvidia.com/gpu", "1000m"),
    "half an accelerator": limit("nvidia.com/gpu", "500m"),
    "accelerators with a fraction": limit("nvidia.com/gpu", 1.5),
    "a domain in capitals": limit("Nvidia.com/gpu", 1),
    "a resource named requests.x/y": limit("requests.nvidia.com/gpu", 1),
    "an attachable volume": limit("kubernetes.io/thing", 1),
    "requests above limits": resources({"requests": {"cpu": 2}, "limits": {"cpu": "1999m"}}),
    "requests equal to limits in another unit": resources(
        {"requests": {"cpu": 2}, "limits": {"cpu": "2000m"}}
    ),
    "requests without limits": resources({"requests": {"cpu": "1"}}),
    "limits without requests": resources({"limits": {"cpu": "1"}}),
    "accelerators in requests only": resources({"requests": {"nvidia.com/gpu": 1}}),
    "fewer accelerators in requests": resources(
        {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}
    ),
    "hugepages in requests only": resources({"requests": {"hugepages-2Mi": "2Mi"}}),
    "empty resources": resources({}),
    "empty limits": resources({"limits": {}}),
    "limits of null": resources({"limits": None}),
    "limits as a list": resources({"limits": [{"cpu": 1}]}),
    "an unknown field of resources": resources({"limit": {"cpu": 1}}),
    # Lists that are maps, and their names
    "a claim": resources({"claims": claims("gpu")}),
    "two claims of a name": resources({"claims": claims("gpu", "gpu")}),
    "a claim of 63 characters": resources({"claims": claims("g" * 63)}),
    "a claim of 64 characters": resources({"claims": claims("g" * 64)}),
    "a claim without a name": resources({"claims": [{}]}),
    # Integers or texts, and unions
    "surge as a number": rolling(maxSurge=2),
    "surge as a percentage": rolling(maxSurge="25%"),
    "surge of more than all": rolling(maxSurge="150%"),
    "surge as a number in a text": rolling(maxSurge="2"),
    "surge with a fraction": rolling(maxSurge="2.5%"),
    "surge as a float": rolling(maxSurge=2.5),
    "negative surge": rolling(maxSurge=-1),
    "negative percentage": rolling(maxSurge="-25%"),
    "percentage with a space": rolling(maxSurge="25 %"),
    "empty surge": rolling(maxSurge=""),
    "surge as a boolean": rolling(maxSurge=True),
    "surge of null": rolling(maxSurge=None),
    "unavailable: all": rolling(maxUnavailable="100%"),
    "unavailable: more than all": rolling(maxUnavailable="101%"),
    "neither surge nor unavailable": rolling(maxSurge=0, maxUnavailable=0),
    "neither, as percentages": rolling(maxSurge="0%", maxUnavailable="0%"),
    "no surge": rolling(maxSurge=0, maxUnavailable=1),
    "an empty member of the union": rolling(),
    "Recreate with the member of another strategy": (
        service(rollout={"strategy": "Recreate", "rolling": {"maxSurge": 1}}),
        deployment(strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}),
    ),
    "Recreate with an empty member of another strategy": (
        service(rollout={"strategy": "Recreate", "rolling": {}}),
        deployment(strategy={"type": "Recreate", "rollingUpdate": {}}),
    ),
    "Recreate with a member of null": (
        service(rollout={"strategy": "Recreate", "rolling": None}),
        deployment(strategy={"type": "Recreate", "rollingUpdate": None}),
    ),
    "a strategy in lower case": (
        service(rollout={"strategy": "recreate"}),
        deployment(strategy={"type": "recreate"}),
    ),
    "a variable with a value": env({"name": "A", "value": "b"}),
    "a variable with neither": env({"name": "A"}),
    "a variable with both": env({"name": "A", "value": "b", "valueFrom": FROM_SECRET}),
    "a variable with an empty value and a secret": env(
        {"name": "A", "value": "", "valueFrom": FROM_SECRET}
    ),
    "a variable from a secret": env({"name": "A", "valueFrom": FROM_SECRET}),
    "a variable from nothing": env({"name": "A", "valueFrom": {}}),
    "a secret without a key": env({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}),
    "a value that is a number": env({"name": "A", "value": 1}),
    "a variable without a name": env({"value": "b"}),
    "a variable called a=b": env({"name": "a=b", "value": "c"}),
    "two variables of a name": env({"name": "A", "value": "b"}, {"name": "A", "value": "c"}),
    "Exists without a key": toleration(operator="Exists"),
    "Exists with a value": toleration(key="a", operator="Exists", value="b"),
    "Equal without a key": toleration(value="b"),
    "Equal without a value": toleration(key="a"),
    "an unknown effect": toleration(key="a", effect="Never"),
    "a key with a space": toleration(key="a b", operator="Exists"),
    "a value of 63 characters": toleration(key="a", value="b" * 63),
    "a value of 64 characters": toleration(key="a", value="b" * 64),
    "a label of 63 characters": node("zone", "a" * 63),
    "a label of 64 characters": node("zone", "a" * 64),
    "a label's key of 64 characters": node("z" * 64, "a"),
    "a label's key with a prefix": node("cloud.example/zone", "a"),
    "a prefix with two dots": node("cloud..example/zone", "a"),
    "a prefix in capitals": node("Cloud.example/zone", "a"),
    "an empty prefix": node("/zone", "a"),
    "a label that is a number": node("zone", 1),
    "a label with a space": node("zone", "a b"),
    "an empty label": node("zone", ""),
    "an empty key of a label": node("", "a"),
    "a pod's label": pod_label("team", "search_1.A"),
    "a pod's label with an umlaut": pod_label("team", "größe"),
    "a pod's label of 64 characters": pod_label("team", "a" * 64),
    "a pod's label with a dash at the end": pod_label("team", "a-"),
    "an empty label of a pod": pod_label("team", ""),
    "a space in the key of a pod's label": pod_label("my team", "a"),
    "a prefix in capitals of a pod's label": pod_label("Example.com/team", "a"),
    "an annotation": annotation("example.com/owner", "größe, and more"),
    "an annotation's prefix in capitals": annotation("Example.com/Owner", "a"),
    "a space in the key of an annotation": annotation("the owner", "a"),
    # Numbers and nulls
    "replicas": replicas(3),
    "no replicas": replicas(0),
    "negative replicas": replicas(-1),
    "replicas as a text": replicas("3"),
    "replicas with a fraction": replicas(1.5),
    "replicas as a boolean": replicas(True),
    "replicas above 2^31": replicas(2**31),
    "a negative grace period": grace(-1),
    "a grace period as a text": grace("60s"),
    "a grace period of null": grace(None),
    "a grace period": grace(60),
    # Unknown fields and wrong kinds of values
    "an unknown field of the spec": (service(replica=1), deployment(replica=1)),
    "an unknown field of the object": (service() | {"sepc": {}}, deployment() | {"sepc": {}}),
    "an unknown field of a list's entry": (
        evaluation([{"name": "A", "valueOf": "b"}]),
        deployment(container={"env": [{"name": "A", "valueOf": "b"}]}),
    ),
    "a list as the spec": (service() | {"spec": []}, deployment() | {"spec": []}),
    "no spec": (
        {k: v for k, v in service().items() if k != "spec"},
        {k: v for k, v in deployment().items() if k != "spec"},
    ),
}

# Values on which InferenceService and Deployment differ: whether InferenceService accepts it, and why.
DIFFERENT = {
    "CPUs as a float": (False, "int-or-string of a CRD takes integers and texts only"),
    "CPUs with a space": (False, "only Kubernetes' own JSON reader trims quantities"),
    "a number of 33 digits": (False, "the cost of CEL is bounded by the length of a text"),
    "two variables of a name": (False, "the second would hide the first; a CRD refuses duplicates"),
    "a negative grace period": (False, "Kubernetes takes it as 1; an engine needs 14 s to end"),
}

DURATIONS = {
    "0h": False, "1h": True, "30m": True, "10s": True, "500ms": True, "2h30m": True, "7230s": True,
    "1h30m10s": True, "10s30m1h": True, "100ms200ms300ms": True, "00001s": True, "99999ms": True,
    "100000s": False, "1": False, "1m1": False, "1h30m10s20ms50h": False, "1.5h": False, "-15m": False,
    "+1s": False, "1d": False, "1us": False, "1 s": False, "1S": False, "": False, "s": False,
    "0s0ms": False, "1s\n": False,
}  # fmt: skip


async def accepts(kube: Kube, body: Spec, validation: str = "Strict") -> bool:
    """Whether the API server accepts the object. Nothing is stored."""
    resource = {
        "Deployment": DEPLOYMENTS,
        "InferenceService": INFERENCE_SERVICES,
        "ModelRoute": MODEL_ROUTES,
        "Service": SERVICES,
    }[body["kind"]]
    try:
        await kube.create(resource, "default", body, dryRun="All", fieldValidation=validation)
    except Rejected:
        return False
    return True


@pytest.mark.parametrize("case", TWINS)
async def test_a_value_is_accepted_or_refused_as_in_kubernetes(kube: Kube, case: str) -> None:
    ours, core = TWINS[case]
    expected = await accepts(kube, core)
    if case in DIFFERENT:
        assert DIFFERENT[case][0] != expected
        expected = DIFFERENT[case][0]
    assert await accepts(kube, ours) == expected


@pytest.mark.parametrize(
    "case", [case for case in TWINS if "unknown field" in case or "null" in case]
)
async def test_a_client_without_validation_is_treated_as_in_kubernetes(
    kube: Kube, case: str
) -> None:
    ours, core = TWINS[case]
    assert await accepts(kube, core, "Ignore") == await accepts(kube, ours, "Ignore")


@pytest.mark.parametrize(("text", "is_valid"), DURATIONS.items())
async def test_a_duration_is_one_of_the_gateway_api(kube: Kube, text: str, is_valid: bool) -> None:
    assert await accepts(kube, service(objectives={"ttft": text})) == is_valid


@pytest.mark.parametrize(("length", "is_valid"), [(63, True), (64, False)])
async def test_a_name_has_at_most_63_characters(kube: Kube, length: int, is_valid: bool) -> None:
    name = "a" * length
    backend = {"name": "rule", "backendRefs": [{"name": "chat"}]}
    route: Spec = {"apiVersion": GROUP, "kind": "ModelRoute", "metadata": {"name": "edge"}}
    rule = route | {"spec": {"modelName": "m", "rules": [backend | {"name": name}]}}
    ports = {"ports": [{"port": 80}]}
    core = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": ports}
    assert await accepts(kube, rule) == await accepts(kube, core) == is_valid


@pytest.mark.parametrize(
    ("names", "is_valid"), [(("a", "b"), True), (("a", "a"), False), ((None,), False)]
)
async def test_entries_of_a_list_by_name_have_one_name_each(
    kube: Kube, names: tuple[Any, ...], is_valid: bool
) -> None:
    ports = [{"port": 80 + n, "name": name} for n, name in enumerate(names)]
    rules = [{"name": name, "backendRefs": [{"name": "chat"}]} for name in names]
    route = {
        "apiVersion": GROUP,
        "kind": "ModelRoute",
        "metadata": {"name": "edge"},
        "spec": {"modelName": "m", "rules": rules},
    }
    assert await accepts(kube, route) == is_valid
    assert await accepts(kube, variants(*names)) == is_valid
    if None not in names:
        core = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "edge"}}
        assert await accepts(kube, core | {"spec": {"ports": ports}}) == is_valid


def test_there_are_enough_edges() -> None:
    assert len(TWINS) + len(DURATIONS) >= 60
    assert DIFFERENT.keys() <= TWINS.keys()
