"""The demo's chapter about LoRA adapters: two of them on the running service."""

import os
import subprocess
import sys
from pathlib import Path

import aiohttp

from penstock.clients.kubernetes.resources import LORA_ADAPTERS
from penstock.core.formats.conditions import find_condition
from penstock.demo.errors import StoryFailed
from penstock.demo.narrator import Narrator
from penstock.demo.stage import Stage, poll_until

EXAMPLE = "tiny-adapters.yaml"
NAMES = ("first", "second")
MARGIN_COLUMNS = 2  # before each line of the demo
MAX_ANSWER_CHARS = 60
QUESTION = "What is a pod in Kubernetes?"


async def show_adapters(stage: Stage, tell: Narrator, root: Path) -> None:
    """Apply two adapters, ask each one, and print where they are. Raises TimeoutError, StoryFailed."""
    tell.chapter("Two LoRA adapters on the same engines")
    path = root / "examples" / EXAMPLE
    tell.yaml(path.read_text())
    tell.command(f"kubectl apply -f examples/{EXAMPLE}")
    for line in stage.kubectl("apply", "-f", str(path)).splitlines():
        tell.say(line)
    with tell.waiting("waiting for Ready"):
        took_s = await poll_until(
            lambda: _are_ready(stage), within_s=60, what="the adapters are Ready"
        )
    tell.fact("Ready", f"after {took_s:.1f} s, without another pod")
    url = f"{stage.cluster.gateway_url}/v1/chat/completions"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        await poll_until(
            lambda: _are_models(stage, session), within_s=10, what="the gateway knows the adapters"
        )
        for name in NAMES:
            body = {
                "model": name, "max_tokens": 16, "temperature": 0,
                "messages": [{"role": "user", "content": QUESTION}],
            }  # fmt: skip
            async with session.post(url, json=body) as answer:
                if answer.status != 200:
                    raise StoryFailed(f"{name} did not answer: {await answer.text()}")
                found = await answer.json()
            text = " ".join(found["choices"][0]["message"]["content"].split())
            tell.fact(found["model"], text[:MAX_ANSWER_CHARS])
    tell.say(
        "The adapters are random, so that their answers are noise; only that they differ matters."
    )
    tell.command("kubectl penstock adapters")
    for line in _table(stage, tell.console.width - MARGIN_COLUMNS).splitlines():
        tell.say(line)


async def _are_ready(stage: Stage) -> bool:
    bodies, _ = await stage.kube.list(LORA_ADAPTERS, "default")
    ready = {
        body["metadata"]["name"]
        for body in bodies
        if find_condition(body.get("status"), "Ready", "True")
    }
    return ready >= set(NAMES)


async def _are_models(stage: Stage, session: aiohttp.ClientSession) -> bool:
    """Whether the gateway, which watches the adapters on its own, lists them as models."""
    async with session.get(f"{stage.cluster.gateway_url}/v1/models") as answer:
        models = await answer.json()
    return {each["id"] for each in models["data"]} >= set(NAMES)


def _table(stage: Stage, columns: int) -> str:
    """The output of `kubectl penstock adapters`. Raises StoryFailed."""
    command = Path(sys.executable).with_name("kubectl-penstock")
    variables = {"KUBECONFIG": str(stage.cluster.kubeconfig), "COLUMNS": str(columns)}
    done = subprocess.run(
        [command, "adapters"],
        env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise StoryFailed(f"kubectl penstock adapters failed: {done.stderr}")
    return done.stdout
