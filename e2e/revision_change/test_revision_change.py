"""The life of a service: applied, changed under load, scaled, a canary rejected and promoted, deleted."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
import yaml
from tests.support.cluster.audit import (
    AuditEntry,
    AuditLog,
    Right,
    denied,
    rights_used,
    service_account_user,
)
from tests.support.cluster.dedicated_pool import change_dedicated_pool
from tests.support.cluster.manifests import adapter_manifest, manifest, route_manifest

from penstock.chart.access.rights import (
    CLUSTER_RULES,
    GATEWAY_RULES,
    GATEWAY_TENANT_RULES,
    LEASE_RULES,
    OPERATOR_RULES,
    OPERATOR_TENANT_RULES,
)
from penstock.chart.names import GATEWAY, LEASE_NAME, NAMESPACE, OPERATOR
from penstock.clients.kubernetes.client import connect
from penstock.clients.kubernetes.resources import DEPLOYMENTS
from penstock.clients.machine.clock import monotonic
from penstock.core.manifests.network import ENGINES_POLICY_NAME
from penstock.core.spec.service import REVISION_LABEL, SERVICE_LABEL, Object
from penstock.demo.load import End, Load, Outcome, Workload, corpus
from penstock.demo.stage import Stage, poll_until
from penstock.gateway.settings import GatewaySettings
from penstock.local.cluster import Cluster
from penstock.local.kubelet.images import IMAGE

ROOT = Path(__file__).parents[2]
NAME = "revised"
ACCELERATED, TEMPLATED = f"{NAME}-accelerated", f"{NAME}-templated"
SEED = 1

pytestmark = pytest.mark.e2e


@dataclass(frozen=True, slots=True)
class History:
    """The results of all steps.

    held: the traffic split while the switch waited for `promote`. asked_s, switched_s: times of that
    command, and when the new revision had the traffic. left: revisions with children after it.
    failed, passed: the rollout status of canaries whose evaluation failed or passed.
    """

    outcomes: list[Outcome]
    held: list[Object]
    asked_s: float
    switched_s: float
    revisions: tuple[str, str]
    left: set[str]
    failed: Object
    passed: Object
    audit: list[AuditEntry]


@pytest.fixture(scope="module")
def history(penstock_cluster: Cluster, models: Path) -> History:
    return asyncio.run(run_history(penstock_cluster, models))


# The folder does not exist, so the operator writes a failed load into the status.
ADAPTER = adapter_manifest(f"{NAME}-sql", NAME, "pvc://models/sql")


async def let_an_account_in(stage: Stage) -> None:
    """Let only a ServiceAccount use the gateway, and use it.

    The operator writes the Tenant's status once gateways know it, and they have its token reviewed: tests
    rights of both.
    """
    account = {"namespace": "default", "name": "default"}
    identity = {"name": "pods", "type": "ServiceAccount", "serviceAccount": account}
    stage.apply(manifest("Tenant", NAME, {"identities": [identity], "access": []}))
    stage.kubectl("wait", "--for=condition=Ready", f"ptenant/{NAME}", "--timeout=60s")
    token = stage.kubectl(
        "create", "token", "default", f"--audience={GatewaySettings().service_account_audience}"
    )
    await wait_for_models(stage, {"Authorization": f"Bearer {token.strip()}"})


async def wait_for_models(stage: Stage, headers: dict[str, str]) -> None:
    """Wait until the gateway lists its models. It is closed for minutes after the last Tenant is deleted."""

    async def is_open() -> bool:
        url = f"{stage.cluster.gateway_url}/v1/models"
        return (await client.get(url, headers=headers)).status_code == 200

    async with httpx.AsyncClient() as client:
        await poll_until(is_open, within_s=240, what="a gateway that lists its models")


async def run_history(cluster: Cluster, models: Path) -> History:
    service = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    service["metadata"]["name"] = NAME
    # Objectives make the operator store the learned state in a ConfigMap: tests those rights.
    service["spec"]["objectives"] = {"ttft": "5s", "tpot": "200ms"}
    # No history: the operator deletes the old revision's record, which tests that right.
    service["spec"]["rollout"] = {
        "revisionHistoryLimit": 0, "strategy": "BlueGreen",
        "blueGreen": {"promotion": "Manual", "scaleDownDelay": "1s"},
    }  # fmt: skip
    workload = Workload(NAME, corpus(ROOT), prompt_words=60, max_tokens=64, seed=SEED, think_s=0.5)
    async with await connect(cluster.kubeconfig) as kube:
        stage = Stage(cluster, kube)
        stage.mount_models(models)
        stage.apply(service)
        try:
            await stage.wait_until(
                lambda view: view.ready == 1 and "stableRevision" in view.status,
                NAME, within_s=120, what="an engine that the status knows",
            )  # fmt: skip
            # The leader makes the Lease again: tests that right.
            stage.kubectl("delete", "lease", LEASE_NAME, "--namespace", NAMESPACE)
            # The operator writes the route's status: tests that right.
            stage.apply(route_manifest(f"{NAME}-any", NAME), ADAPTER)
            # The operator creates, changes and deletes a dedicated pool: tests those rights.
            await change_dedicated_pool(stage, NAME, f"{NAME}-sql")
            stage.kubectl("wait", "--for=condition=Ready", f"mroute/{NAME}-any", "--timeout=60s")
            async with Load(cluster.gateway_url, workload) as load:
                held, asked_s, switched_s, revisions = await revise(stage, load)
                await load.finish()
            left = await revisions_with_children(stage)
            failed, passed = await try_twice(stage, workload)
            stage.patch(NAME, {"scaling": {"minReplicas": 2}})
            await stage.wait_until(
                lambda view: view.ready >= 2, NAME, within_s=60, what="two engines"
            )
            # Scaled to one engine, so that the operator deletes the disruption budget: tests that right.
            external = {"objectives": None, "scaling": {"mode": "External"}, "replicas": 1}
            stage.patch(NAME, external)
            await stage.wait_for_engines(NAME, 1, within_s=60)
            check_for_accelerators(stage, service["spec"]["model"])
            await wait_for_a_template(stage, service["spec"]["model"])
            await let_an_account_in(stage)
        finally:
            stage.kubectl("delete", f"ptenant/{NAME}", "--ignore-not-found")
            await wait_for_models(stage, {})
            stage.kubectl("delete", "psvc", ACCELERATED, TEMPLATED, "--ignore-not-found")
            stage.kubectl("delete", f"mroute/{NAME}-any", "--ignore-not-found")
            stage.kubectl("delete", f"lora/{NAME}-sql", "--ignore-not-found")
            stage.kubectl("delete", "psvc", NAME, "--ignore-not-found")
            await stage.wait_until_gone(NAME, within_s=60)
            # The operator deletes the engines' policy with the last service: tests that right.
            policy = f"networkpolicy/{ENGINES_POLICY_NAME}"
            stage.kubectl("wait", "--for=delete", policy, "--timeout=60s")
            await stage.close()
    audit = AuditLog(cluster).entries()
    return History(load.outcomes, held, asked_s, switched_s, revisions, left, failed, passed, audit)


# Resources of engines on accelerators, whose memory nodes or ResourceSlices say.
ACCELERATORS: tuple[Object, ...] = (
    {"resources": {"limits": {"nvidia.com/gpu": 1}}},
    {
        "resources": {"claims": [{"name": "gpu"}]},
        "template": {
            "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
        },
    },
)


def check_for_accelerators(stage: Stage, model: Object) -> None:
    """Have a model checked for accelerators of unknown memory: tests the rights to look for it."""
    for fields in ACCELERATORS:
        stage.apply(manifest("InferenceService", ACCELERATED, {"model": model, **fields}))
        stage.kubectl("wait", "--for=condition=ModelReady", f"psvc/{ACCELERATED}", "--timeout=60s")
        stage.kubectl("delete", f"psvc/{ACCELERATED}", "--cascade=foreground")


async def wait_for_a_template(stage: Stage, model: Object) -> None:
    """Have a pod wait for a ConfigMap that does not exist: tests the right to read its Events."""
    template = {"configMapKeyRef": {"name": "nowhere", "key": "chat.jinja"}}
    spec = {"model": model, "engine": {"parsers": {"chatTemplate": template}}}
    stage.apply(manifest("InferenceService", TEMPLATED, spec))
    await stage.wait_for_reason(TEMPLATED, "FailedMount", kind="ModelReady", within_s=60)
    stage.kubectl("delete", f"psvc/{TEMPLATED}", "--cascade=foreground")


async def revise(stage: Stage, load: Load) -> tuple[list[Object], float, float, tuple[str, str]]:
    """Change the spec while clients stream, promote it, and wait until the old pods are gone."""
    before = (await stage.view(NAME)).status["stableRevision"]
    load.set_clients(4)
    await asyncio.sleep(3)
    stage.patch(NAME, {"engine": {"maxModelLen": 768}})
    await stage.wait_for_phase(NAME, "Waiting", within_s=90)
    held: list[Object] = (await stage.view(NAME)).status["traffic"]
    asked_s = monotonic()
    code, said = await stage.rollout("promote", NAME)
    assert code == 0, said
    await stage.wait_until(
        lambda view: view.status["stableRevision"] != before, NAME, within_s=90, what="the switch"
    )
    switched_s = monotonic()
    after = (await stage.view(NAME)).status["stableRevision"]
    await stage.wait_until(
        lambda view: {pod.revision for pod in view.pods} == {after},
        NAME, within_s=60, what="the old pods are gone",
    )  # fmt: skip
    return held, asked_s, switched_s, (before, after)


# A stub evaluation: it asks the canary for its model, and always reports 7 of 40 answers as right.
TRIAL = """
import json, os, sys, urllib.request
url = os.environ["PENSTOCK_CANARY_URL"] + "/v1/models"
served = json.load(urllib.request.urlopen(url, timeout=10))["data"][0]["id"]
needed = int(os.environ["NEEDED"])
open("/dev/termination-log", "w").write(f"{served}: 7 of 40 right, {needed} needed")
sys.exit(7 < needed)
"""


def evaluated(needed: int) -> Object:
    """Rollout settings of a canary that is promoted after ten seconds if its evaluation passes."""
    evaluation = {
        "image": IMAGE, "command": ["python", "-c", TRIAL],
        "env": [{"name": "NEEDED", "value": str(needed)}], "timeout": "60s",
    }  # fmt: skip
    canary = {
        "minWeightPercent": 50, "maxWeightPercent": 50, "maxDuration": "10s", "onTimeout": "Promote",
        "evaluation": evaluation,
    }  # fmt: skip
    return {"strategy": "Canary", "blueGreen": None, "canary": canary}


async def try_twice(stage: Stage, workload: Workload) -> tuple[Object, Object]:
    """Run a canary whose evaluation fails, then retry it with one that passes.

    Returns the rollout status at the end of each.
    """
    stage.patch(NAME, {"rollout": evaluated(needed=8), "engine": {"seed": 5}})
    failed = await stage.wait_for_phase(NAME, "Rejected", within_s=120)
    stage.patch(NAME, {"rollout": evaluated(needed=7)})
    code, said = await stage.rollout("resume", NAME)
    assert code == 0, said
    async with Load(
        stage.cluster.gateway_url, replace(workload, max_tokens=8, think_s=0.3)
    ) as load:
        load.set_clients(3)
        passed = await stage.wait_for_phase(NAME, "Stable", within_s=120)
        await load.finish()
    return failed, passed


async def revisions_with_children(stage: Stage) -> set[str]:
    found, _ = await stage.kube.list(
        DEPLOYMENTS, "default", labelSelector=f"{SERVICE_LABEL}={NAME}"
    )
    pods = (await stage.view(NAME)).pods
    return {d["metadata"]["labels"][REVISION_LABEL] for d in found} | {p.revision for p in pods}


def test_no_request_is_refused_or_broken(history: History) -> None:
    bad = [outcome for outcome in history.outcomes if outcome.end != End.DONE]
    assert bad == []
    astride = [
        o
        for o in history.outcomes
        if o.started_s < history.switched_s and o.started_s + o.duration_s > history.asked_s
    ]
    later = [o for o in history.outcomes if o.started_s > history.switched_s]
    print(
        f"seed {SEED}: {len(history.outcomes)} requests done, {len(astride)} of them while the traffic "
        f"moved and {len(later)} afterwards"
    )
    assert astride
    assert later


def test_a_manual_switch_waits_for_promote(history: History) -> None:
    before, _ = history.revisions
    assert {share["revision"] for share in history.held} == {before}


def test_only_the_new_revision_has_children(history: History) -> None:
    before, after = history.revisions
    assert before != after
    assert history.left == {after}


def test_a_failed_evaluation_rolls_the_canary_back(history: History) -> None:
    told = f"{NAME}: 7 of 40 right, 8 needed"
    assert history.failed["rejected"]["message"] == f"the evaluation failed: {told}"
    (gate,) = history.failed["gates"]
    assert (gate["kind"], gate["state"], gate["message"]) == ("Evaluation", "Failed", told)


def test_a_passed_evaluation_promotes_the_canary(history: History) -> None:
    """The status of the retry shows nothing of the first attempt."""
    assert history.passed.get("rejected") is None
    (gate,) = history.passed["gates"]
    told = f"{NAME}: 7 of 40 right, 7 needed"
    assert (gate["kind"], gate["state"], gate["message"]) == ("Evaluation", "Passing", told)


# Checked by admission (OwnerReferencesPermissionEnforcement) within other requests, so it is not in the
# audit log as a request. Without these rights, children and records of adapters are denied.
ADMISSION_RIGHTS = {
    ("serving.penstock.dev", f"{plural}/finalizers", "update")
    for plural in ("inferenceservices", "loraadapters")
}


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        (OPERATOR, OPERATOR_RULES + OPERATOR_TENANT_RULES + CLUSTER_RULES + LEASE_RULES),
        (GATEWAY, GATEWAY_RULES + GATEWAY_TENANT_RULES),
    ],
)
def test_rights_granted_are_rights_used(history: History, name: str, rules: list[Object]) -> None:
    user = service_account_user(name)
    # On the same cluster, pods of e2e/restricted are denied on purpose, and e2e/adapter_rollouts and
    # e2e/dedicated_pool delete their namespaces, which then take no new objects.
    others = ("restricted-", "lora-pools", "lora-versions")
    refused = [e for e in denied(user, history.audit) if not e.namespace.startswith(others)]
    assert refused == []
    unused = granted(rules) - rights_used(user, history.audit) - ADMISSION_RIGHTS
    assert unused == set()


def granted(rules: list[Object]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
