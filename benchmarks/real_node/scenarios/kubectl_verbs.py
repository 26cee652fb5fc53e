"""Commands of daily use against pods of Penstock: logs, exec, port-forward, top, and Penstock's own."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.real_node.access import port_forward
from benchmarks.real_node.lab import Lab
from benchmarks.real_node.stream_answer import stream_answer
from tests.support.cluster.manifests import service_manifest

from penstock.chart.names import GATEWAY, NAMESPACE
from penstock.clients.machine.clock import monotonic
from penstock.core.manifests import restricted
from penstock.core.spec.service import ENGINE_PORT
from penstock.demo.kubectl import KubectlError
from penstock.demo.stage import Stage, poll_until

NAME = "verbs"
ENGINE = {"maxModelLen": 256, "maxNumSeqs": 8, "kvCache": {"memory": "8Mi"}}
IDENTITY = "import json, os; print(json.dumps([os.getuid(), os.access('/', os.W_OK)]))"


async def run(lab: Lab) -> dict[str, object]:
    async with lab.stage_in_namespace(NAME) as stage:
        stage.apply(service_manifest(NAME, {"engine": ENGINE}))
        await stage.wait_until_ready(NAME, within_s=240)
        (pod,) = (each.name for each in (await stage.view(NAME)).pods if each.is_ready)
        figures: dict[str, object] = {"log_lag_s": await follow_logs(stage, pod)}
        check_exec(stage, pod)
        figures["forwarded_first_token_s"] = await ask_forwarded(stage, pod)
        figures["metrics_after_s"] = await read_usage(stage, pod)
        check_penstock(stage, lab.out)
        return figures


async def follow_logs(stage: Stage, pod: str) -> float:
    """Follow an engine's log during a request. Returns the seconds until the request's line is there."""
    async with followed(stage, pod) as log:
        await asyncio.to_thread(stream_answer, stage.cluster.gateway_url, NAME)
        answered_s = monotonic()
        async with asyncio.timeout(20):
            async for line in log:
                if b'"request"' in line and NAME.encode() in line:
                    return round(monotonic() - answered_s, 2)
    raise AssertionError("the log ended without the request")


@asynccontextmanager
async def followed(stage: Stage, pod: str) -> AsyncIterator[asyncio.StreamReader]:
    """Run `kubectl logs -f`, and yield its output."""
    process = await asyncio.create_subprocess_exec(
        *stage.kubectl.command("logs", "-f", pod), env=stage.kubectl.environment,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def check_exec(stage: Stage, pod: str) -> None:
    """Check in the engine's container that it has no rights that the restricted profile refuses."""
    uid, may_write = json.loads(stage.kubectl("exec", pod, "--", "python", "-c", IDENTITY))
    assert (uid, may_write) == (restricted.POD["runAsUser"], False), (uid, may_write)


async def ask_forwarded(stage: Stage, pod: str) -> object:
    """Stream answers through `kubectl port-forward` to an engine and to the gateway's Service."""
    async with port_forward(stage, f"pod/{pod}", ENGINE_PORT) as url:
        direct = await asyncio.to_thread(stream_answer, url, NAME)
    async with port_forward(stage, f"service/{GATEWAY}", 80, "-n", NAMESPACE) as url:
        routed = await asyncio.to_thread(stream_answer, url, NAME)
    assert direct["text"] == routed["text"], (direct, routed)
    return routed["first_token_s"]


async def read_usage(stage: Stage, pod: str) -> float:
    """Wait for the usage of the engine in `kubectl top`. Returns the seconds."""

    async def has_usage() -> bool:
        try:
            return bool(re.search(rf"^{pod} +\d+m +\d+Mi", stage.kubectl("top", "pods"), re.M))
        except KubectlError:  # before the first scrape of the metrics server
            return False

    took_s = await poll_until(has_usage, within_s=90, what="the engine's usage")
    nodes = stage.kubectl("top", "nodes", "--no-headers").splitlines()
    assert len(nodes) == stage.cluster.num_nodes, nodes
    assert all(re.search(r" \d+m +\d+% +\d+Mi +\d+%", line) for line in nodes), nodes
    return round(took_s, 1)


def check_penstock(stage: Stage, out: Path) -> None:
    """Run Penstock's commands as kubectl's plugin, and check what they print."""
    in_namespace = f"--namespace={stage.namespace}"
    assert "Stable" in plugin(stage, "rollout", "status", NAME, in_namespace)
    assert "stable" in plugin(stage, "rollout", "history", NAME, in_namespace)
    assert NAME in plugin(stage, "explain", NAME, in_namespace)
    plugin(stage, "adapters", in_namespace)
    recording = f"--output={out / 'verbs.jsonl'}"
    assert "wrote" in plugin(stage, "record", NAME, in_namespace, "--for=6s", recording)


def plugin(stage: Stage, *arguments: str) -> str:
    """Run `kubectl penstock`. Raises AssertionError with the output if it fails."""
    folder = Path(sys.executable).parent
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    done = subprocess.run(
        [stage.kubectl.binary, "penstock", *arguments],
        env=stage.kubectl.environment | {"PATH": path, "COLUMNS": "200"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (arguments, done.stdout + done.stderr)
    return done.stdout
