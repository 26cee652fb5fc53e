"""Fields of `spec.template` for scheduling, identity and environment, in Deployments and pods."""

from typing import Any

import pytest
from tests.controller.conftest import Stand
from tests.controller.disruption_budgets import listed_budgets

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import DEPLOYMENTS, SERVICE_ACCOUNTS, Resource
from penstock.controller.names.model_names import ModelNames
from penstock.controller.services.reconciler import Reconciler
from penstock.core.manifests.allowed_pods import TEMPLATE_NOT_ALLOWED, PodLimits
from penstock.core.observed.stored_status import POD_TEMPLATE_REJECTED
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL

pytestmark = pytest.mark.cluster

PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "priorityclasses", namespaced=False)
LABELS = {"matchLabels": {SERVICE_LABEL: "chat"}}
IN_ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
# Fields of the pod, which the preflight has too.
POD: dict[str, Any] = {
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccountName": "model-reader",
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [IN_ZONE]}]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": LABELS}
            ]
        },
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": LABELS,
        }
    ],
}
# Fields of the engine's container.
ENV = [
    {"name": "HF_HUB_OFFLINE", "value": "1"},
    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}},
]
ENV_FROM = [{"configMapRef": {"name": "settings"}}]
VOLUME = {"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}
MOUNT = {"name": "cache", "mountPath": "/cache"}
METADATA = {"labels": {"team": "search"}, "annotations": {"example.com/owner": "a@example.com"}}


@pytest.fixture
async def priority(kube: Kube, namespace: str) -> Any:
    """Name of a priority class, and its value; the service account exists too."""
    await kube.create(PRIORITY_CLASSES, None, {"metadata": {"name": namespace}, "value": 7000})
    account = {"metadata": {"name": "model-reader"}}
    await kube.create(SERVICE_ACCOUNTS, namespace, account)
    yield namespace
    await kube.delete(PRIORITY_CLASSES, None, namespace)


def assert_pod(found: Any, priority: str) -> None:
    """Assert the fields of a pod spec that preflight and engine have in common."""
    for name, value in POD.items():
        if name == "tolerations":  # admission adds those of the node's conditions to pods
            assert value[0] in found[name]
        else:
            assert found[name] == value, name
    assert found["priorityClassName"] == priority
    assert found["automountServiceAccountToken"] is False
    assert VOLUME in found["volumes"]
    assert not any(each["name"].startswith("kube-api-access") for each in found["volumes"])


def assert_engine(container: Any) -> None:
    assert [each for each in container["env"] if each in ENV] == ENV
    assert "POD_IP" in [each["name"] for each in container["env"]]
    assert container["envFrom"] == ENV_FROM
    assert MOUNT in container["volumeMounts"]
    assert "/models" in [each["mountPath"] for each in container["volumeMounts"]]


async def test_a_template_sets_scheduling_identity_and_environment(
    stand: Stand, priority: str
) -> None:
    limits = PodLimits(allowed_service_accounts=(f"{stand.namespace}/model-reader",))
    stand.reconciler = Reconciler(
        stand.kube, "penstock", services=dict, names=ModelNames(),
        budgets=listed_budgets(stand.kube), scaling=lambda *_: None,
        judgement=lambda *_: None, applied_generations=lambda _: {},
        gateway_url="", gone=lambda _: None, limits=limits,
    )  # fmt: skip
    engine = {"name": "engine", "env": ENV, "envFrom": ENV_FROM, "volumeMounts": [MOUNT]}
    spec = POD | {"priorityClassName": priority, "volumes": [VOLUME], "containers": [engine]}
    await stand.create(template={"metadata": METADATA, "spec": spec})
    preflights = {}

    async def is_stable() -> bool:
        for pod in await stand.pods():
            if pod["metadata"]["labels"][ROLE_LABEL] != SERVE:
                preflights[pod["metadata"]["name"]] = pod
        return (await stand.status())["rollout"]["phase"] == "Stable"

    await stand.until(is_stable)
    (deployment,), _ = await stand.kube.list(DEPLOYMENTS, stand.namespace)
    (preflight,) = preflights.values()
    serving = [pod for pod in await stand.pods() if pod["metadata"]["labels"][ROLE_LABEL] == SERVE]
    assert serving
    template = deployment["spec"]["template"]
    for each in (template, *serving):
        assert each["metadata"]["labels"].items() >= METADATA["labels"].items()
        assert each["metadata"]["annotations"].items() >= METADATA["annotations"].items()
        assert_engine(each["spec"]["containers"][0])
    for each in (template, preflight, *serving):
        assert_pod(each["spec"], priority)
    for each in (preflight, *serving):
        assert each["spec"]["priority"] == 7000


@pytest.mark.parametrize(
    ("container", "reason", "path"),
    [
        ({"args": ["serve", 5]}, POD_TEMPLATE_REJECTED, ".args[1]"),
        ({"command": "penstock-engine"}, POD_TEMPLATE_REJECTED, ".command"),
        ({"resources": "small"}, TEMPLATE_NOT_ALLOWED, "resources of the container engine"),
        (
            {"env": [{"name": "A", "value": "x", "$patch": "replace"}]},
            TEMPLATE_NOT_ALLOWED,
            "env[0].$patch",
        ),
        ({"env": [{"name": "A", "value": 5}]}, POD_TEMPLATE_REJECTED, "value"),
    ],
)
async def test_fields_of_a_wrong_type_are_a_condition(
    stand: Stand, container: dict[str, Any], reason: str, path: str
) -> None:
    """The schema does not check them. Without a condition, the write would be tried again for ever."""
    await stand.create(template={"spec": {"containers": [{"name": "engine", **container}]}})

    async def is_stalled() -> bool:
        return await stand.condition("Stalled") == ("True", reason)

    await stand.until(is_stalled)
    messages = [
        c["message"] for c in (await stand.status())["conditions"] if c["type"] == "Stalled"
    ]
    assert path in messages[0]
    assert "spec.template" in messages[0]


async def test_a_probe_of_another_kind_needs_a_null_for_the_own_one(stand: Stand) -> None:
    """Server-side apply keeps the null, and a merge patch loses it (docs/concepts/security.md)."""
    probe = {"tcpSocket": {"port": 8000}}

    def template(**more: Any) -> Any:
        return {"spec": {"containers": [{"name": "engine", "readinessProbe": probe | more}]}}

    body = await stand.create(template=template())

    async def is_rejected() -> bool:
        return (await stand.condition("WorkloadReady"))[1] == "PodTemplateRejected"

    await stand.until(is_rejected)
    await stand.change(template=template(httpGet=None))
    assert (await stand.body())["spec"]["template"] == template()
    metadata = {"name": body["metadata"]["name"], "namespace": stand.namespace}
    spec = {"model": body["spec"]["model"], "template": template(httpGet=None)}
    kind = {name: body[name] for name in ("apiVersion", "kind")}
    await stand.kube.apply(kind | {"metadata": metadata, "spec": spec}, manager="user")
    await stand.until_phase("Stable")
    (deployment,), _ = await stand.kube.list(DEPLOYMENTS, stand.namespace)
    found = deployment["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
    assert found["tcpSocket"] == {"port": 8000}
    assert "httpGet" not in found
