"""Templates that would gain rights: refused by the API server's policy, and by the operator without it."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from tests.controller.disruption_budgets import listed_budgets
from tests.support.specs.random_templates import LIKELY_OVERRIDES, OVERRIDES
from tests.support.specs.template_overrides import ALLOWED, REFUSED

from penstock.chart.rendering.install import install_manifests
from penstock.clients.kubernetes.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    KINDS,
    PODS,
)
from penstock.controller.names.model_names import ModelNames
from penstock.controller.services.reconciler import Reconciler
from penstock.core.manifests.allowed_pods import NODE_CACHE_REFUSED, PodLimits
from penstock.core.spec.template_limits import ACCOUNT_REFUSED, template_violation
from penstock.errors import Rejected

pytestmark = pytest.mark.cluster

CASES = 400
NETWORK = {"spec": {"hostNetwork": True}}
SENTENCE = "spec.template.spec.hostNetwork is not allowed in a template: remove it"


def service(namespace, name="chat", *, uri="pvc://models/tiny", **template):
    return {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"uri": uri}, "template": template},
    }


async def refusal(kube, body):
    """The API server's error message about a service; None if it accepts it."""
    try:
        await kube.apply(body, manager="user", dry_run=True)
    except Rejected as error:
        return str(error)
    return None


@pytest.fixture
async def policy(kube, namespace):
    """Function that installs the chart's policy for the namespace, and removes it after the test."""
    made = []

    async def install(node_cache=None, **operator):
        values = {"image": {"repository": "x"}, "watchNamespace": namespace, "operator": operator}
        values["nodeCache"] = node_cache or {}
        for manifest in install_manifests(values, namespace):
            if manifest["kind"].startswith("Validating"):
                made.append(manifest)
                await kube.apply(manifest, manager="test")
        for _ in range(300):  # policies take effect with a delay
            if await refusal(kube, service(namespace, "probe", **NETWORK)):
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the policy does not take effect")

    yield install
    for manifest in made:
        await kube.delete(KINDS[manifest["kind"]], None, manifest["metadata"]["name"])


async def test_the_policy_refuses_what_the_operator_refuses_in_the_same_words(
    kube, namespace, policy
):
    await policy()
    for _, override, path in REFUSED:
        sentence = template_violation({"spec": override})
        assert sentence.startswith(path)
        assert sentence in (await refusal(kube, service(namespace, spec=override)) or "")
    for override in ALLOWED.values():
        assert await refusal(kube, service(namespace, spec=override)) is None
    annotation = {"container.apparmor.security.beta.kubernetes.io/engine": "unconfined"}
    template = {"metadata": {"annotations": annotation}}
    assert template_violation(template) in await refusal(kube, service(namespace, **template))
    assert await refusal(kube, service(namespace, metadata={"annotations": {"a": "b"}})) is None
    print(f"{len(REFUSED)} overrides refused, {len(ALLOWED)} taken")


async def test_the_policy_and_the_operator_agree_on_random_templates(kube, namespace, policy):
    await policy()
    drawn = []

    @settings(max_examples=CASES, derandomize=True, database=None)
    @given(OVERRIDES | LIKELY_OVERRIDES)
    def draw(override):
        drawn.append(override)

    draw()
    verdicts = Counter()
    for override in drawn:
        ours = template_violation({"spec": override})
        theirs = await refusal(kube, service(namespace, spec=override))
        verdicts[ours is None] += 1
        assert (ours is None) == (theirs is None), (override, ours, theirs)
        assert "resulted in error" not in (theirs or ""), (override, theirs)
    print(f"{verdicts[True]} templates taken by both, {verdicts[False]} refused by both")
    assert min(verdicts.values()) > CASES // 20


async def test_the_policy_refuses_folders_of_nodes_that_are_not_allowed(kube, namespace, policy):
    await policy(allowedHostPaths=["/models/", "/data/a"])
    for path in ("/models", "/models/tiny", "//models//./tiny", "/data/a/b"):
        assert await refusal(kube, service(namespace, uri=f"file://{path}")) is None
        assert await refusal(kube, with_sources(namespace, f"file://{path}")) is None
    for path in ("/etc", "/modelsx", "/data", "/data/ab", "/"):
        said = await refusal(kube, service(namespace, uri=f"file:///{path}"))
        assert "operator.allowedHostPaths" in said
        body = service(namespace)
        model = {"uri": f"file:///{path}"}
        body["spec"]["engine"] = {
            "speculative": {"method": "draft_model", "numSpeculativeTokens": 2, "model": model}
        }
        assert await refusal(kube, body) == said
        assert await refusal(kube, with_sources(namespace, f"file:///{path}")) == said


@pytest.mark.parametrize("is_enabled", [False, True])
async def test_the_policy_knows_whether_nodes_have_a_cache(kube, namespace, policy, is_enabled):
    await policy({"enabled": is_enabled, "allowedSources": ["hf://org/"]})
    body = service(namespace, uri="hf://org/model")
    for cache, is_refused in (
        ({"claimName": "cache"}, False),
        ({"claimName": "cache", "type": "Claim"}, False),
        ({"type": "Node"}, not is_enabled),
    ):
        body["spec"]["model"]["cache"] = cache
        assert (NODE_CACHE_REFUSED in (await refusal(kube, body) or "")) == is_refused
    body["spec"]["model"]["cache"] = {"claimName": "cache"}
    writable = {"name": "model-cache", "mountPath": "/x"}
    engine = {"name": "engine", "volumeMounts": [writable]}
    body["spec"]["template"] = {"spec": {"containers": [engine]}}
    assert "must set readOnly to true" in await refusal(kube, body)


def with_sources(namespace, uri):
    """A service whose engines load adapters from a claim and from this source."""
    body = service(namespace)
    body["spec"]["engine"] = {"lora": {"maxAdapters": 2, "sources": ["pvc://adapters", uri]}}
    return body


async def test_a_service_from_before_the_policy_may_not_add_sources(kube, namespace, policy):
    created = await kube.create(INFERENCE_SERVICES, namespace, service(namespace))
    await policy()
    lora = {"maxAdapters": 2, "sources": ["file:///etc"]}
    key = (INFERENCE_SERVICES, namespace, created["metadata"]["name"])
    with pytest.raises(Rejected, match=r"operator\.allowedHostPaths"):
        await kube.merge(*key, {"spec": {"engine": {"lora": lora}}}, manager="test")


async def test_the_policy_knows_the_allowed_service_accounts(kube, namespace, policy):
    allowed = ("reader", f"{namespace}/own", "elsewhere/other")
    await policy(allowedServiceAccounts=list(allowed))
    for name in ("reader", "own"):
        account = {"serviceAccountName": name}
        assert await refusal(kube, service(namespace, spec=account)) is None
    for name in ("other", "default", f"{namespace}/own", "", None, 7, ["reader"]):
        said = await refusal(kube, service(namespace, spec={"serviceAccountName": name}))
        assert ACCOUNT_REFUSED in said


async def test_a_service_from_before_the_policy_may_be_changed_elsewhere(kube, namespace, policy):
    created = await kube.create(INFERENCE_SERVICES, namespace, service(namespace, **NETWORK))
    await policy()
    key = (INFERENCE_SERVICES, namespace, "chat")
    for patch in (
        {"metadata": {"labels": {"team": "search"}, "finalizers": ["penstock.dev/test"]}},
        {"spec": {"scaling": {"maxReplicas": 3}}},
        {"metadata": {"finalizers": []}},
    ):
        await kube.merge(*key, patch, manager="test")
    await kube.merge(*key, {"status": {"observedGeneration": 1}}, manager="test", sub="status")
    for spec in (
        {"template": {"spec": {"hostPID": True}}},
        {"model": {"uri": "pvc://models/other"}},
    ):
        with pytest.raises(Rejected, match="is not allowed in a template"):
            await kube.merge(*key, {"spec": spec}, manager="test")
    await kube.merge(*key, {"spec": {"template": None}}, manager="test")
    assert "template" not in (await kube.get(*key))["spec"]
    assert created["spec"]["template"] == NETWORK


async def test_other_namespaces_have_no_policy(kube, namespace, new_namespace, policy):
    await policy()
    assert await refusal(kube, service(await new_namespace(), **NETWORK)) is None


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"template": NETWORK}, "TemplateNotAllowed", SENTENCE),
        ({"model": {"uri": "file:///etc"}}, "HostPathNotAllowed", "--allowed-host-path"),
        (
            {"model": {"uri": "hf://a/b", "cache": {"type": "Node"}}},
            "NodeCacheNotEnabled",
            "spec.model.cache.claimName instead",
        ),
    ],
)
async def test_without_the_policy_it_is_a_condition(stand, spec, reason, words):
    await stand.create(**spec)
    await stand.step()
    for kind in ("SpecValid", "Stalled", "Ready"):
        assert (await stand.condition(kind))[1] == reason
    conditions = (await stand.status())["conditions"]
    (message,) = (each["message"] for each in conditions if each["type"] == "SpecValid")
    assert words in message
    assert await stand.pods() == []
    assert (await stand.kube.list(CONTROLLER_REVISIONS, stand.namespace))[0] == []

    limits = PodLimits(True, ("/etc",), node_cache_path="/var/lib/penstock/models")
    stand.reconciler = reconciler(stand, limits)
    await stand.step()
    assert await stand.condition("SpecValid") == ("True", "Valid")


def reconciler(stand, limits):
    return Reconciler(
        stand.kube, "penstock", services=dict, names=ModelNames(),
        budgets=listed_budgets(stand.kube), scaling=lambda *_: None,
        judgement=lambda *_: None, applied_generations=lambda _: {},
        gateway_url="", gone=lambda _: None, limits=limits,
    )  # fmt: skip


async def test_every_override_is_a_condition(new_stand):
    stand = await new_stand()
    await stand.create()
    for _, override, path in REFUSED:
        patch = {"op": "add", "path": "/spec/template", "value": {"spec": override}}
        await stand.kube.patch(INFERENCE_SERVICES, *stand.key, [patch], manager="user")
        await stand.step()
        (found,) = (
            each for each in (await stand.status())["conditions"] if each["type"] == "SpecValid"
        )
        if found["reason"] == "InvalidSpec":
            assert "a list that keeps the container engine" in found["message"]
        else:
            assert found["reason"] == "TemplateNotAllowed"
            assert found["message"].startswith(path)
        assert found["status"] == "False"
    assert await stand.pods() == []


async def test_a_running_service_keeps_its_revision(stand):
    await stand.create()
    await stand.until_phase("Stable")
    before = await stand.deployment_uids()
    await stand.change(template=NETWORK)
    await stand.step()
    version = (await stand.body())["metadata"]["resourceVersion"]
    for _ in range(3):
        await stand.step()
    assert (await stand.body())["metadata"]["resourceVersion"] == version
    assert await stand.condition("SpecValid") == ("False", "TemplateNotAllowed")
    assert await stand.condition("TrafficAvailable") == ("True", "Serving")
    assert await stand.condition("Ready") == ("True", "Ready")
    assert (await stand.status())["readyReplicas"] == 1
    assert await stand.deployment_uids() == before
    assert len([pod for pod in await stand.pods() if pod["status"].get("podIP")]) == 1
    assert len((await stand.kube.list(CONTROLLER_REVISIONS, stand.namespace))[0]) == 1
    await stand.change(template=None)
    await stand.step()
    assert await stand.condition("SpecValid") == ("True", "Valid")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"template": NETWORK}, "TemplateNotAllowed"),
        ({"engine": {"extraArgs": ["--port=1"]}}, "UnsupportedByRuntime"),
        # A spec that cannot be read.
        ({"template": {"spec": {"containers": [{"name": "engine", "image": ""}]}}}, "InvalidSpec"),
    ],
)
async def test_an_outage_shows_while_the_spec_is_refused(stand, change, reason):
    await stand.create()
    await stand.until_phase("Stable")
    await stand.change(**change)
    await stand.step()
    assert await stand.condition("SpecValid") == ("False", reason)
    assert await stand.condition("WorkloadReady") == ("True", "EnginesReady")
    assert await stand.condition("Ready") == ("True", "Ready")
    for pod in await stand.pods():
        await stand.kube.merge(
            PODS, stand.namespace, pod["metadata"]["name"], {"status": {"conditions": []}},
            manager="test", sub="status",
        )  # fmt: skip
    await stand.step()
    assert await stand.condition("WorkloadReady") == ("False", "Progressing")
    assert await stand.condition("TrafficAvailable") == ("False", "NoEngineReady")
    assert await stand.condition("Ready") == ("False", "Progressing")
    assert await stand.condition("Stalled") == ("True", reason)
    assert (await stand.status())["readyReplicas"] == 0


async def test_a_revision_from_before_the_limits_is_kept_and_none_is_added(stand):
    """Its pods are scaled as before, but it is not returned to once another one is stable."""
    replicas = {"scaling": {"mode": "External"}}
    old = {"spec": {"shareProcessNamespace": True}}
    stand.reconciler = reconciler(stand, PodLimits(allow_unrestricted_templates=True))
    await stand.create(template=old, replicas=1, **replicas)
    await stand.until_phase("Stable")
    before = await stand.deployment_uids()

    stand.reconciler = reconciler(stand, PodLimits())
    await stand.step()
    assert await stand.condition("SpecValid") == ("True", "AllowedBefore")
    await stand.change(replicas=2)

    async def is_scaled():
        found, _ = await stand.kube.list(DEPLOYMENTS, stand.namespace)
        return [each["spec"]["replicas"] for each in found] == [2]

    await stand.until(is_scaled)
    assert await stand.deployment_uids() == before

    await stand.change(engine={"seed": 1})
    await stand.step()
    assert await stand.condition("SpecValid") == ("False", "TemplateNotAllowed")
    assert await stand.deployment_uids() == before
    await stand.change(engine=None, template=None)

    async def is_replaced():
        return not before & await stand.deployment_uids()

    await stand.until(is_replaced)
    await stand.until_phase("Stable")
    await stand.change(template=old)
    await stand.step()
    assert await stand.condition("SpecValid") == ("False", "TemplateNotAllowed")
    serving, _ = await stand.kube.list(PODS, stand.namespace)
    assert not any(pod["spec"].get("shareProcessNamespace") for pod in serving)
