"""One life: applied, changed to a new revision under load, scaled, tried in vain, deleted."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from penstock.adapters.clock import monotonic
from penstock.adapters.kube import DEPLOYMENTS, connect
from penstock.core.manifests import system
from penstock.core.service import REVISION_LABEL, SERVICE_LABEL, Object
from penstock.demo.campaigns import corpus
from penstock.demo.load import End, Load, Outcome, Workload
from penstock.demo.stage import Stage, models_claim
from penstock.local.audit import AuditEntry, AuditLog, Right, account, denied, rights_used
from penstock.local.cluster import Cluster

ROOT = Path(__file__).parents[2]
NAME = "revised"
SEED = 1

pytestmark = pytest.mark.e2e


@dataclass(frozen=True, slots=True)
class Life:
    """switched_s: when the new revision took the traffic. left: revisions with children then on."""

    outcomes: list[Outcome]
    switched_s: float
    revisions: tuple[str, str]
    left: set[str]
    tried: Object
    audit: list[AuditEntry]


@pytest.fixture(scope="module")
def life(penstock_cluster: Cluster, models: Path) -> Life:
    return asyncio.run(live(penstock_cluster, models))


async def live(cluster: Cluster, models: Path) -> Life:
    service = yaml.safe_load((ROOT / "examples" / "quickstart.yaml").read_text())
    service["metadata"]["name"] = NAME
    # What sizing learns is kept in a ConfigMap: those rights are used too.
    service["spec"]["objectives"] = {"ttft": "5s", "tpot": "200ms"}
    # And the old revision is forgotten: that right, too.
    service["spec"]["rollout"] = {"revisionHistoryLimit": 0}
    workload = Workload(NAME, corpus(ROOT), prompt_words=60, max_tokens=64, seed=SEED)
    async with await connect(cluster.kubeconfig) as kube:
        stage = Stage(cluster, kube)
        stage.kubectl("apply", "-f", "-", stdin=models_claim(models))
        stage.kubectl("apply", "-f", "-", stdin=json.dumps(service))
        try:
            await stage.until(
                lambda view: view.ready == 1 and "stableRevision" in view.status,
                NAME, within_s=120, what="an engine that the status knows",
            )  # fmt: skip
            async with Load(cluster.gateway_url, workload) as load:
                switched_s, revisions = await revise(stage, load)
                await load.finish()
            left = await revisions_with_children(stage)
            tried = await try_in_vain(stage)
            patch(stage, {"scaling": {"minReplicas": 2}})
            await stage.until(lambda view: view.ready == 2, NAME, within_s=60, what="two engines")
        finally:
            stage.kubectl("delete", "isvc", NAME, "--ignore-not-found")
            await stage.gone(NAME, within_s=60)
            await stage.close()
    return Life(load.outcomes, switched_s, revisions, left, tried, AuditLog(cluster).entries())


async def revise(stage: Stage, load: Load) -> tuple[float, tuple[str, str]]:
    """Change the spec while six clients stream; until the old revision's pods are gone."""
    before = (await stage.view(NAME)).status["stableRevision"]
    load.set_clients(6)
    await asyncio.sleep(3)
    patch(stage, {"engine": {"maxModelLen": 768}})
    await stage.until(
        lambda view: view.status["stableRevision"] != before, NAME, within_s=90, what="the switch"
    )
    switched_s = monotonic()
    after = (await stage.view(NAME)).status["stableRevision"]
    await stage.until(
        lambda view: {pod.revision for pod in view.pods} == {after},
        NAME, within_s=60, what="the old pods are gone",
    )  # fmt: skip
    return switched_s, (before, after)


# It asks the canary for its models, and is not content with them.
TRIAL = """
import json, os, sys, urllib.request
url = os.environ["PENSTOCK_CANARY_URL"] + "/v1/models"
served = json.load(urllib.request.urlopen(url, timeout=10))["data"][0]["id"]
open("/dev/termination-log", "w").write(f"{served}: {os.environ['WANTED']} of 40 right")
sys.exit(1)
"""


async def try_in_vain(stage: Stage) -> Object:
    """A canary whose evaluation fails; the rollout's status at its end."""
    evaluation = {
        "image": "penstock", "command": ["python", "-c", TRIAL],
        "env": [{"name": "WANTED", "value": "7"}], "timeout": "60s",
    }  # fmt: skip
    canary = {"minWeight": 0.5, "maxWeight": 0.5, "evaluation": evaluation}
    patch(stage, {"rollout": {"strategy": "Canary", "canary": canary}, "engine": {"seed": 5}})
    await stage.until(
        lambda view: view.status["rollout"]["phase"] == "Rejected",
        NAME, within_s=120, what="the evaluation has failed",
    )  # fmt: skip
    rollout: Object = (await stage.view(NAME)).status["rollout"]
    return rollout


def patch(stage: Stage, spec: Object) -> None:
    stage.kubectl("patch", "isvc", NAME, "--type=merge", "-p", json.dumps({"spec": spec}))


async def revisions_with_children(stage: Stage) -> set[str]:
    found, _ = await stage.kube.list(
        DEPLOYMENTS, "default", labelSelector=f"{SERVICE_LABEL}={NAME}"
    )
    pods = (await stage.view(NAME)).pods
    return {d["metadata"]["labels"][REVISION_LABEL] for d in found} | {p.revision for p in pods}


def test_no_request_is_refused_or_broken(life: Life) -> None:
    bad = [outcome for outcome in life.outcomes if outcome.end != End.DONE]
    assert bad == []
    astride = [
        o for o in life.outcomes if o.started_s < life.switched_s < o.started_s + o.duration_s
    ]
    later = [o for o in life.outcomes if o.started_s > life.switched_s]
    print(
        f"seed {SEED}: {len(life.outcomes)} requests done, {len(astride)} of them while the traffic "
        f"moved and {len(later)} afterwards"
    )
    assert astride
    assert later


def test_only_the_new_revision_has_children(life: Life) -> None:
    before, after = life.revisions
    assert before != after
    assert life.left == {after}


def test_an_evaluation_that_fails_takes_the_canary_back(life: Life) -> None:
    told = f"{NAME}: 7 of 40 right"
    assert life.tried["rejected"]["reason"] == f"the evaluation failed: {told}"
    (gate,) = life.tried["gates"]
    assert (gate["kind"], gate["state"], gate["message"]) == ("Evaluation", "Failed", told)


# Asked for by admission (OwnerReferencesPermissionEnforcement) on behalf of another request, so
# that no request of its own is in the log; without it creating a child would be denied.
ADMISSION_ASKS = {("serving.penstock.dev", "inferenceservices/finalizers", "update")}


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        (system.OPERATOR, system.OPERATOR_RULES + system.LEASE_RULES),
        (system.GATEWAY, system.GATEWAY_RULES),
    ],
)
def test_rights_granted_are_rights_used(life: Life, name: str, rules: list[Object]) -> None:
    user = account(name)
    # In e2e/restricted, which shares the cluster, pods are denied by admission, as they should be.
    refused = [e for e in denied(user, life.audit) if not e.namespace.startswith("restricted-")]
    assert refused == []
    unused = granted(rules) - rights_used(user, life.audit) - ADMISSION_ASKS
    assert unused == set()


def granted(rules: list[Object]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
