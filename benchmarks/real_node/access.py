"""Ways to pods that users have: a client in the cluster, `kubectl exec` and `kubectl port-forward`."""

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.core.manifests import restricted
from penstock.core.spec.service import Object
from penstock.demo.stage import Stage
from penstock.local.kubelet.images import IMAGE

CLIENT = "client"
STREAM_ANSWER = Path(__file__).with_name("stream_answer.py")
# Time to start kubectl on a machine whose cores are all busy.
FORWARD_WITHIN_S = 60


def client_pod() -> Object:
    """Build a pod that waits for `kubectl exec`, and that the restricted pod security allows."""
    container = {
        "name": CLIENT,
        "image": IMAGE,
        "command": ["sleep", "infinity"],
        "securityContext": restricted.CONTAINER,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": CLIENT},
        "spec": {
            "containers": [container],
            "securityContext": restricted.POD,
            "terminationGracePeriodSeconds": 0,
        },
    }


def start_client(stage: Stage) -> None:
    """Start the pod `client`, and wait until it runs."""
    stage.apply(client_pod())
    stage.kubectl("wait", "--for=condition=Ready", f"pod/{CLIENT}", "--timeout=90s", timeout_s=100)


def ask_from(stage: Stage, pod: str, url: str, model: str) -> Object:
    """Stream an answer to a pod. Returns its times and its text."""
    command = ("exec", "-i", pod, "--", "python", "-", url, model)
    answer: Object = json.loads(
        stage.kubectl(*command, stdin=STREAM_ANSWER.read_text(), timeout_s=90)
    )
    return answer


@asynccontextmanager
async def port_forward(stage: Stage, target: str, port: int, *options: str) -> AsyncIterator[str]:
    """Run `kubectl port-forward` to a pod or a Service, and yield the URL on this machine."""
    process = await asyncio.create_subprocess_exec(
        *stage.kubectl.command("port-forward", target, f":{port}", *options),
        env=stage.kubectl.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), FORWARD_WITHIN_S)).decode()
        found = re.fullmatch(r"Forwarding from (127\.0\.0\.1:\d+) -> \d+\n", line)
        assert found, line
        yield f"http://{found[1]}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
