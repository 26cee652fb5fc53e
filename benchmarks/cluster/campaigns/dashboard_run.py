"""A run that has something to show in every panel: load, a scale step, a rollout, adapters and a kill."""

import asyncio
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import aiohttp
from tests.support.background import background
from tests.support.cluster.manifests import route_manifest, service_manifest
from tests.support.cluster.rollouts import SLOW

from penstock.core.spec.service import ENGINE_PORT, Object
from penstock.demo.load import Load, Workload
from penstock.demo.stage import Stage
from penstock.local import faults
from penstock_engine.make_model.adapters import make_adapter

CHAT, ADAPTED = "chat", "adapted"
# ModelRoutes: to CHAT, to CHAT with a timeout that no response meets, and to no service.
ROUTE, HASTY, BROKEN = "assistant", "hasty", "broken"
ADAPTERS = ("law", "medicine", "poetry")
START_TIMEOUT_S, JUDGING_S = 240, 180
# Time for the gateway to learn of a new service, s.
APPLIED_S = 5
RANK = 4


def chat(prometheus_url: str) -> Object:
    """A service with objectives, prices and a canary that a query of Prometheus guards."""
    gate = {
        "name": "queue",
        "server": prometheus_url,
        "query": 'sum(vllm:num_requests_waiting{service="$namespace/$service"})',
        "maximum": "1000",
        "interval": "10s",
    }
    return service_manifest(
        CHAT,
        {
            "engine": {"maxModelLen": 512, "maxNumSeqs": 8, "kvCache": {"memory": "8Mi"}},
            "objectives": {"ttft": "2s", "tpot": "200ms", "attainment": "0.9"},
            "variants": [
                {
                    "name": "small",
                    "pricePerHour": "0.5",
                    "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
                },
                {
                    "name": "gpu",
                    "pricePerHour": "4",
                    "resources": {"limits": {"memory": "2Gi", "nvidia.com/gpu": 1}},
                    "maxReplicas": 0,
                },
            ],
            "scaling": {"minReplicas": 1, "maxReplicas": 2},
            "terminationGracePeriodSeconds": 20,
            "rollout": {
                "strategy": "Canary",
                "canary": {
                    "minWeightPercent": 30,
                    "maxWeightPercent": 40,
                    "mirror": {"percent": 100, "duration": "10s"},
                    "metrics": [gate],
                },
            },
        },
    )


def adapted() -> Object:
    """A service whose engine has adapters, drafts tokens by n-grams and keeps KV blocks in host memory."""
    modules = " ".join(f"--lora-modules {name}=/models/{name}" for name in ADAPTERS)
    drafts = json.dumps({"method": "ngram", "num_speculative_tokens": 3})
    command = (
        f'exec penstock-engine "$@" --enable-lora --max-loras 1 --max-cpu-loras 1 {modules} '
        f"--speculative-config '{drafts}' --kv-offloading-size 0.05"
    )
    container = {"name": "engine", "command": ["bash", "-c", command, "engine"]}
    return service_manifest(
        ADAPTED,
        {
            "engine": {"maxModelLen": 256, "maxNumSeqs": 4, "kvCache": {"memory": "1Mi"}},
            "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
            "scaling": {"minReplicas": 1, "maxReplicas": 1},
            "terminationGracePeriodSeconds": 20,
            "template": {"spec": {"containers": [container]}},
        },
    )


def make_models(folder: Path, model: Path) -> None:
    """Copy the model into a folder, with LoRA adapters of random factors beside it."""
    shutil.copytree(model, folder / model.name)
    for seed, name in enumerate(ADAPTERS):
        make_adapter(model, folder / name, seed=seed, rank=RANK, projections=("q_proj",))


async def play(stage: Stage, words: Sequence[str], prometheus_url: str) -> None:
    """Play the run. The claim `models` must have the adapters. Raises TimeoutError."""
    routes = (
        route_manifest(ROUTE, CHAT),
        route_manifest(HASTY, CHAT, timeouts={"request": "10ms"}),
        route_manifest(BROKEN, "nobody"),
    )
    stage.apply(chat(prometheus_url), adapted(), *routes)
    url = stage.cluster.gateway_url
    workload = Workload(CHAT, words, prompt_words=40, max_tokens=24, seed=1, think_s=0.5)
    routed = Workload(ROUTE, words, prompt_words=20, max_tokens=8, seed=2, think_s=2.0)
    async with Load(url, workload) as load, Load(url, routed) as other:
        await asyncio.sleep(APPLIED_S)
        load.set_clients(5)  # they wait for the first engine
        for name in (CHAT, ADAPTED):
            await stage.wait_for_engines(name, 1, within_s=START_TIMEOUT_S)
        other.set_clients(1)
        async with background(_use_adapters(stage, words)):
            await _disturb(stage, load, url)
        await asyncio.gather(load.finish(), other.finish())


async def _disturb(stage: Stage, load: Load, url: str) -> None:
    """Roll out, scale, kill, send bad requests and a burst, with quiet times between them."""
    await asyncio.sleep(40)
    await _rollout(stage)
    load.set_clients(3)
    await asyncio.sleep(20)
    stage.patch(CHAT, {"scaling": {"minReplicas": 2}})
    await stage.wait_for_engines(CHAT, 2, within_s=START_TIMEOUT_S)
    await _kill(stage, load)
    await _bad_requests(url)
    load.set_clients(40)
    await asyncio.sleep(15)
    load.set_clients(3)
    await asyncio.sleep(30)


async def _rollout(stage: Stage) -> None:
    """Roll out a slow release by a canary until it is rejected, or abort it after a while."""
    stage.patch(CHAT, SLOW)
    await stage.wait_until(
        lambda view: len(view.status.get("traffic", [])) == 3, CHAT,
        within_s=START_TIMEOUT_S, what="a canary beside its control",
    )  # fmt: skip
    try:
        await stage.wait_for_phase(CHAT, "Rejected", within_s=JUDGING_S)
    except TimeoutError:
        code, said = await stage.rollout("abort", CHAT)
        assert code == 0, said
        await stage.wait_for_phase(CHAT, "Rejected", within_s=START_TIMEOUT_S)


async def _kill(stage: Stage, load: Load) -> None:
    """Kill one of the engines under load; the others go on."""
    load.set_clients(12)
    await asyncio.sleep(5)
    victim = min(pod.name for pod in (await stage.view(CHAT)).pods if pod.is_ready)
    faults.kill(stage.cluster, victim, "engine")
    await asyncio.sleep(5)
    await stage.wait_for_engines(CHAT, 2, within_s=START_TIMEOUT_S)
    load.set_clients(3)


async def _bad_requests(url: str) -> None:
    """Send requests that are refused or take too long, and some whose client disconnects in the middle."""
    target = f"{url}/v1/chat/completions"
    message = [{"role": "user", "content": "Tell a story."}]
    async with aiohttp.ClientSession() as session:
        for _ in range(5):
            bodies: list[Object] = [{"model": CHAT}]  # without messages
            bodies += ({"model": name, "messages": message} for name in ("nobody", HASTY, BROKEN))
            for body in bodies:
                async with session.post(target, json=body) as answer:
                    await answer.read()
            long: Object = {
                "model": CHAT, "messages": message, "max_tokens": 400, "ignore_eos": True,
                "stream": True,
            }  # fmt: skip
            async with session.post(target, json=long) as answer:
                await answer.content.readany()
            await asyncio.sleep(1)


async def _use_adapters(stage: Stage, words: Sequence[str]) -> None:
    """Use all adapters in turn, at their engine: the gateway does not route by adapter."""
    (pod,) = [pod for pod in (await stage.view(ADAPTED)).pods if pod.is_ready]
    url = f"http://{pod.address}:{ENGINE_PORT}/v1/completions"
    draw = random.Random(3)
    async with aiohttp.ClientSession() as session:
        while True:
            for model in (*ADAPTERS, ADAPTED):
                start = draw.randrange(len(words) - 25)
                text = " ".join(words[start : start + 25])
                # Repeated words let n-grams find drafts.
                body = {"model": model, "prompt": f"{text} {text}", "max_tokens": 24}
                async with session.post(url, json=body) as answer:
                    await answer.read()
                await asyncio.sleep(1)
