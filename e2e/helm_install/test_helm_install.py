"""The life of a Helm release: installed, upgraded under load, uninstalled, installed for one namespace."""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from e2e.nodes import temporary_cluster
from tests.support.cluster.audit import AuditEntry, AuditLog, denied, service_account_user
from tests.support.cluster.dedicated_pool import change_dedicated_pool
from tests.support.cluster.helm import CHART, Release
from tests.support.cluster.manifests import RESTRICTED, adapter_manifest
from tests.support.cluster.service_proxy import reachable_service

from penstock.chart.names import GATEWAY, LEASE_NAME, NAMESPACE, OPERATOR
from penstock.chart.rendering.templates import CRD_NAMES
from penstock.clients.kubernetes.client import connect
from penstock.clients.kubernetes.resources import CRDS, LEASES, NAMESPACES, PODS
from penstock.core.manifests.network import ENGINES_POLICY_NAME
from penstock.core.tenants.api_key import KEYS_NAMESPACE
from penstock.demo.load import End, Load, Outcome, Workload, corpus
from penstock.demo.stage import Stage, poll_until
from penstock.local.cluster import Cluster
from penstock.local.kubelet.images import REPOSITORY
from penstock.local.record import NodeKind

ROOT = Path(__file__).parents[2]
NAME = "helmed"
FLOW_SCHEMA = f"{OPERATOR}-{NAMESPACE}"
# Objects of these kinds come and go by themselves, or are copies of others.
NOT_COMPARED = {"events", "events.events.k8s.io", "componentstatuses"}

pytestmark = pytest.mark.e2e


@dataclass(frozen=True, slots=True)
class History:
    """The results of all steps.

    aliases: short names of the CRD after the upgrade. before, after: all objects of the cluster before the
    install and after the uninstall, with finalizers.
    replaced: pods of operator and gateway before and after the upgrade. refused: requests of operator and
    gateway that were denied while one of the two releases was installed. flow: requests in the operator's
    priority level. said: by Helm at the uninstall. answer: finish reason of a request to the second release.
    """

    outcomes: list[Outcome]
    aliases: list[str]
    before: dict[str, list[str]]
    after: dict[str, list[str]]
    replaced: tuple[set[str], set[str]]
    refused: list[AuditEntry]
    flow: float
    said: str
    answer: str


@pytest.fixture(scope="module")
def history(models: Path, node: NodeKind) -> Iterator[History]:
    with temporary_cluster("helm", node) as cluster:
        yield asyncio.run(run_history(cluster, models))


async def run_history(cluster: Cluster, models: Path) -> History:
    release = Release(cluster)
    image = ("--set", f"image.repository={REPOSITORY}")
    async with await connect(cluster.kubeconfig) as kube:
        stage = Stage(cluster, kube)
        stage.mount_models(models)
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": RESTRICTED},
        }
        await kube.create(NAMESPACES, None, namespace)
        await asyncio.sleep(2)  # the controllers make what every namespace has
        before = all_objects(stage)
        await release("install", earlier_chart(cluster.folder / "earlier-chart"), *image)
        apply_service(stage)
        await stage.wait_until_ready(NAME, within_s=120)
        # Earlier, admission refuses owner references to a kind that the API server has just got to know.
        position = AuditLog(cluster).position()
        async with reachable_service(cluster, kube, NAMESPACE, GATEWAY) as url:
            outcomes, replaced = await upgrade_under_load(stage, release, url)
        crd = await kube.get(CRDS, None, CRD_NAMES[0])
        await until_lease_is_made_again(stage)
        refused = denied_since(cluster, position)
        flow = requests_in_flow(stage)
        said = await release("uninstall")
        await poll_until(lambda: is_removed(stage), within_s=120, what="no pods and no Lease")
        after = all_objects(stage)
        position = AuditLog(cluster).position()
        await release("install", CHART, *image, "--set", "watchNamespace=default")
        async with reachable_service(cluster, kube, NAMESPACE, GATEWAY) as url:
            answer = await ask(url)
        await scale(stage)
        await use_dedicated_pool(stage)
        refused += denied_since(cluster, position)
        await stage.close()
    aliases = crd["spec"]["names"]["shortNames"]
    return History(outcomes, aliases, before, after, replaced, refused, flow, said, answer)


def earlier_chart(folder: Path) -> Path:
    """Write the chart with another short name in the CRD, as an earlier version may have it."""
    shutil.copytree(CHART, folder)
    crds = folder / "templates" / "crds.yaml"
    text = crds.read_text()
    assert "- psvc\n" in text
    crds.write_text(text.replace("- psvc\n", "- earlier\n"))
    return folder


def apply_service(stage: Stage) -> None:
    service = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    service["metadata"]["name"] = NAME
    stage.apply(service)


async def use_dedicated_pool(stage: Stage) -> None:
    """Let the operator of one namespace make and delete a dedicated pool. Its adapter has no files."""
    stage.apply(adapter_manifest("sql", NAME, "pvc://models/sql"))
    await change_dedicated_pool(stage, NAME, "sql")
    stage.kubectl("delete", "lora", "sql")


async def upgrade_under_load(
    stage: Stage, release: Release, url: str
) -> tuple[list[Outcome], tuple[set[str], set[str]]]:
    """Change a value that replaces all pods of both Deployments while clients stream."""
    workload = Workload(NAME, corpus(ROOT), prompt_words=40, max_tokens=32, think_s=0.3)
    old = await pods(stage)
    async with Load(url, workload) as load:
        load.set_clients(4)
        await asyncio.sleep(3)
        await release("upgrade", CHART, "--reuse-values", "--set", "logLevel=debug")
        await poll_until(lambda: are_gone(stage, old), within_s=120, what="the old pods are gone")
        await asyncio.sleep(3)
        await load.finish()
    return load.outcomes, (old, await pods(stage))


async def until_lease_is_made_again(stage: Stage) -> None:
    """Delete the Lease, as a person may do, and wait until the leader has made it again."""
    await stage.kube.delete(LEASES, NAMESPACE, LEASE_NAME)

    async def exists() -> bool:
        found, _ = await stage.kube.list(LEASES, NAMESPACE)
        return bool(found)

    await poll_until(exists, within_s=30, what="the Lease")


async def pods(stage: Stage) -> set[str]:
    found, _ = await stage.kube.list(PODS, NAMESPACE)
    return {pod["metadata"]["name"] for pod in found}


async def are_gone(stage: Stage, names: set[str]) -> bool:
    return not names & await pods(stage)


async def is_removed(stage: Stage) -> bool:
    """Whether the pods have ended, and the garbage collector has deleted the Lease."""
    leases, _ = await stage.kube.list(LEASES, NAMESPACE)
    return not leases and not await pods(stage)


def all_objects(stage: Stage) -> dict[str, list[str]]:
    """Names of all objects of the cluster, with their finalizers."""
    kinds = stage.kubectl("api-resources", "--verbs=list", "--output=name").split()
    wanted = ",".join(sorted(set(kinds) - NOT_COMPARED))
    items = json.loads(stage.kubectl("get", wanted, "--all-namespaces", "--output=json"))["items"]
    return {
        f"{item['kind']} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}": item[
            "metadata"
        ].get("finalizers", [])
        for item in items
    }


def requests_in_flow(stage: Stage) -> float:
    """Number of requests that the API server put into the operator's priority level."""
    metrics = stage.kubectl("get", "--raw", "/metrics")
    line = rf'^apiserver_flowcontrol_dispatched_requests_total{{flow_schema="{FLOW_SCHEMA}",.*}} (\S+)$'
    return sum(float(value) for value in re.findall(line, metrics, re.MULTILINE))


def denied_since(cluster: Cluster, position: int) -> list[AuditEntry]:
    """Denied requests of operator and gateway. position: in the audit log."""
    entries = AuditLog(cluster).entries(position)
    return [e for name in (OPERATOR, GATEWAY) for e in denied(service_account_user(name), entries)]


async def scale(stage: Stage) -> None:
    """Have the operator add an engine, for which it must lead and watch."""
    stage.patch(NAME, {"scaling": {"minReplicas": 2}})
    await stage.wait_for_engines(NAME, 2, within_s=90)


async def ask(url: str) -> str:
    """Send one request. Returns its finish reason, or the error."""
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 8,
        "ignore_eos": True,  # the end of the answer may be drawn among the first eight tokens
    }
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"{url}/v1/chat/completions", json=body)
    if answer.status_code != 200:
        return answer.text
    return str(answer.json()["choices"][0]["finish_reason"])


def test_no_request_fails_during_an_upgrade(history: History) -> None:
    bad = [outcome for outcome in history.outcomes if outcome.end != End.DONE]
    print(f"{len(history.outcomes)} requests during the upgrade")
    assert bad == []
    assert len(history.outcomes) > 20


def test_the_upgrade_replaces_all_pods(history: History) -> None:
    old, new = history.replaced
    assert len(old) == len(new) == 4
    assert not old & new


def test_the_upgrade_upgrades_the_crds(history: History) -> None:
    assert history.aliases == ["psvc"]


def test_nothing_is_denied(history: History) -> None:
    assert history.refused == []


def test_the_operator_has_its_priority_level(history: History) -> None:
    assert history.flow > 10


def test_an_uninstall_leaves_crds_and_what_users_made(history: History) -> None:
    left = history.after.keys() - history.before.keys()
    crds = {f"CustomResourceDefinition /{name}" for name in CRD_NAMES}
    assert crds <= left
    others = {name for name in left - crds if not name.startswith("APIService ")}
    # The service, what belongs to it, the policy of its engines, and the namespace of API keys with what
    # Kubernetes makes in each.
    foreign = {name for name in others if f" default/{NAME}" not in name}
    assert foreign == {
        f"NetworkPolicy default/{ENGINES_POLICY_NAME}",
        f"Namespace /{KEYS_NAMESPACE}",
        f"ConfigMap {KEYS_NAMESPACE}/kube-root-ca.crt",
        f"ServiceAccount {KEYS_NAMESPACE}/default",
    }
    assert f"InferenceService default/{NAME}" in others
    finalizers = {name: history.after[name] for name in left if history.after[name]}
    assert finalizers == {}
    for name in CRD_NAMES:
        assert name in history.said  # Helm says what it kept


def test_a_release_for_one_namespace_serves_what_was_left(history: History) -> None:
    assert history.answer == "length"
