"""The README's three commands for a cluster that exists already, as written, and the quickstart's request."""

import asyncio
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from e2e.documentation.code_blocks import read_blocks
from e2e.nodes import temporary_cluster
from tests.support.cluster.service_proxy import reachable_service
from tests.support.tools.chart_tools import ensure_helm

from penstock.chart.names import GATEWAY, NAMESPACE, OPERATOR
from penstock.chart.version import VERSION
from penstock.clients.kubernetes.client import Kube, connect
from penstock.clients.kubernetes.resources import PODS
from penstock.core.observed.pods import ObservedPod
from penstock.core.spec.service import SERVICE_LABEL
from penstock.local import chat_model
from penstock.local.binaries import ensure_binaries
from penstock.local.cluster import Cluster
from penstock.local.install import hub_values
from penstock.local.record import NodeKind

ROOT = Path(__file__).parents[2]
UNTIL_READY = f"kubectl wait --for=condition=Ready pods --all -n {NAMESPACE} --timeout=2m"
REGISTRY = "registry.example"  # of the README's commands
SHELL = ["bash", "-euo", "pipefail", "-c"]

pytestmark = pytest.mark.e2e


@dataclass(frozen=True, slots=True)
class Outcome:
    """Output of the three commands, lines of the streamed answer, and pods of Penstock and of the service."""

    printed: str
    answer: list[str]
    system: list[dict[str, Any]]
    engines: list[dict[str, Any]]


def install_commands(page: str) -> str:
    """The block of a page that installs the chart."""
    (found,) = [
        block.text
        for block in read_blocks((ROOT / page).read_text())
        if block.language == "bash" and "helm install penstock charts/" in block.text
    ]
    return found


def quickstart_request() -> str:
    """The README's curl command."""
    texts = [block.text for block in read_blocks((ROOT / "README.md").read_text()) if block.is_run]
    (found,) = re.findall(r"^curl -N .*?'$", "\n".join(texts), re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def outcome(node: NodeKind) -> Iterator[Outcome]:
    chat_model.ensure_chat_model(print)
    with temporary_cluster("readme", node, registry=REGISTRY, serves_hub=True) as cluster:
        yield asyncio.run(run_commands(cluster))


async def run_commands(cluster: Cluster) -> Outcome:
    environment = user_environment(cluster)
    printed = await shell(install_commands("README.md"), environment)
    async with await connect(cluster.kubeconfig) as kube:
        async with reachable_service(cluster, kube, NAMESPACE, GATEWAY) as url:
            variable = {"PENSTOCK_URL": f"{url}/v1"}
            answer = await shell(quickstart_request(), environment | variable)
        await shell(UNTIL_READY, environment)  # of two replicas, one is enough for an answer
        system = await pods(kube, NAMESPACE, "app.kubernetes.io/part-of=penstock")
        engines = await pods(kube, "default", f"{SERVICE_LABEL}=chat")
    return Outcome(printed, answer.splitlines(), system, engines)


def user_environment(cluster: Cluster) -> dict[str, str]:
    """Variables of a shell that has helm and kubectl, and a home folder of its own."""
    tools = [helm_folder(cluster), ensure_binaries(print)["kubectl"].parent]
    return os.environ | {
        "HOME": str(cluster.folder / "home"),
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": os.pathsep.join([*map(str, tools), os.environ["PATH"]]),
    }


def helm_folder(cluster: Cluster) -> Path:
    """Make a folder with helm. Its `install` names the mirror of a cluster that cannot reach the hub."""
    values = cluster.folder / "hub-values.json"
    values.write_text(json.dumps(hub_values(cluster)))
    folder = cluster.folder / "tools"
    folder.mkdir()
    helm = folder / "helm"
    real = shlex.quote(str(ensure_helm(print)))
    helm.write_text(f'#!/bin/sh\nexec {real} "$@" --values {shlex.quote(str(values))}\n')
    helm.chmod(0o755)
    return folder


async def shell(commands: str, environment: dict[str, str]) -> str:
    """Run commands from the root of the repository. Returns what they printed."""
    process = await asyncio.create_subprocess_exec(
        *SHELL, commands, cwd=ROOT, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    assert process.returncode == 0, (out + errors).decode()
    return out.decode()


async def pods(kube: Kube, namespace: str, selector: str) -> list[dict[str, Any]]:
    found, _ = await kube.list(PODS, namespace, labelSelector=selector)
    return found


def test_the_commands_work_as_written(outcome: Outcome) -> None:
    assert "STATUS: deployed" in outcome.printed
    assert "inferenceservice.serving.penstock.dev/chat created" in outcome.printed
    assert "inferenceservice.serving.penstock.dev/chat condition met" in outcome.printed


def test_the_gateway_streams_the_answer(outcome: Outcome) -> None:
    chunks = [line.removeprefix("data: ") for line in outcome.answer if line.startswith("data: ")]
    assert chunks[-1] == "[DONE]"
    contents = [json.loads(chunk)["choices"][0]["delta"].get("content") for chunk in chunks[:-1]]
    assert len([content for content in contents if content]) > 5


def test_pods_have_the_images_that_make_images_builds(outcome: Outcome) -> None:
    images = [pod["spec"]["containers"][0]["image"] for pod in outcome.system]
    assert images == [f"{REGISTRY}/penstock:{VERSION}"] * 4
    names = [pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in outcome.system]
    assert sorted(names) == sorted([GATEWAY, OPERATOR] * 2)
    engine_images = {pod["spec"]["containers"][0]["image"] for pod in outcome.engines}
    assert engine_images == {f"{REGISTRY}/penstock-engine:{VERSION}"}


def test_an_engine_is_ready(outcome: Outcome) -> None:
    assert any(ObservedPod.of(pod).is_ready for pod in outcome.engines)


def test_both_pages_have_the_same_commands() -> None:
    assert install_commands("docs/tutorials/install.md") == install_commands("README.md")
