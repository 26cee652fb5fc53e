"""Serves, scales and rolls out one service on a runtime, and records what happened."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp
from benchmarks.cluster.campaigns.run_record import Record
from tests.support.background import background
from tests.support.cluster.manifests import service_manifest
from tests.support.cluster.rollouts import release

from penstock.clients.machine.clock import monotonic
from penstock.core.spec.service import Object
from penstock.demo.load import End, Load, Workload
from penstock.demo.stage import Stage, View

NAME = "runtime"
# The same for every runtime. `kvCache.memory` holds 4,096 tokens of the tiny model in bfloat16.
# --enforce-eager: vLLM would compile for longer than the load lasts.
SPEC: Object = {
    "engine": {
        "maxModelLen": 512,
        "maxNumSeqs": 8,
        "kvCache": {"memory": "8Mi", "blockSize": 32},
        "extraArgs": ["--enforce-eager"],
    },
    "resources": {"limits": {"cpu": 1, "memory": "6Gi"}},
    "scaling": {"minReplicas": 1, "maxReplicas": 2, "scaleDownDelay": "30s"},
    "terminationGracePeriodSeconds": 60,
    "rollout": {
        "strategy": "Canary",
        "canary": {
            "comparison": "Stable",
            "minWeightPercent": 40,
            "maxWeightPercent": 50,
            "latencyTolerancePercent": 100,
            "errorTolerancePercent": 10,
            "violationTolerancePercent": 30,
            "maxDuration": "30m",
        },
        "progressDeadline": "20m",
    },
}
CHANGE: Object = {"engine": {"maxNumSeqs": 10}}
SCALING_CLIENTS, CANARY_CLIENTS = 24, 3


@dataclass(slots=True)
class RuntimeRecord(Record):
    """Record of one run. decisions: of the scaler, in order. evidence: the last one of the canary."""

    runtime: str = ""
    decisions: list[tuple[float, int, str]] = field(default_factory=list)
    evidence: list[Object] = field(default_factory=list)
    ends: Counter[End] = field(default_factory=Counter)


def manifest(runtime: Object) -> Object:
    """The service. runtime: spec.runtime; empty to leave it out."""
    return service_manifest(NAME, SPEC | ({"runtime": runtime} if runtime else {}))


async def run(
    stage: Stage, words: Sequence[str], runtime: Object, *, within_s: float
) -> RuntimeRecord:
    """Deploy the service, stream an answer, scale it 1 -> 2 -> 1, and roll out a change with a canary.

    within_s: time limit of each step. Raises TimeoutError.
    """
    record = RuntimeRecord(runtime=runtime.get("type", "Penstock"))
    stage.apply(manifest(runtime))
    took_s = await stage.wait_until(_is_ready, NAME, within_s=within_s, what="the service is Ready")
    record.add("Ready", took_s, "one engine")
    record.add("streamed answer", *await _stream(stage))
    async with background(_watch_decisions(stage, record)):
        await _scale(stage, words, record, within_s)
        await _roll_out(stage, words, record, within_s)
    stage.kubectl("delete", "psvc", NAME)
    record.add("deleted", await stage.wait_until_gone(NAME, within_s=120), "nothing remains")
    return record


async def _stream(stage: Stage) -> tuple[float, str]:
    """Stream one answer through the gateway. Returns the seconds and what came."""
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": "How does a canary end?"}],
        "max_tokens": 16,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    started_s, events, usage = monotonic(), 0, ""
    url = f"{stage.cluster.gateway_url}/v1/chat/completions"
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if line.startswith(b"data: {"):
                events += 1
                usage = str(json.loads(line[6:]).get("usage") or usage)
    return monotonic() - started_s, f"{events} events, usage {usage}"


async def _scale(
    stage: Stage, words: Sequence[str], record: RuntimeRecord, within_s: float
) -> None:
    async with _load(stage, words) as load:
        load.set_clients(SCALING_CLIENTS)
        took_s = await stage.wait_until(_has(2), NAME, within_s=within_s, what="two engines")
        record.add("1 → 2", took_s, f"under {SCALING_CLIENTS} clients")
        await asyncio.sleep(20)
        load.set_clients(1)  # a stream must outlive the scale-down
        took_s = await stage.wait_until(_has(1), NAME, within_s=within_s, what="one engine")
        await load.finish()
        record.add("2 → 1", took_s, f"with one client: {_note_ends(record, load)}")


async def _roll_out(
    stage: Stage, words: Sequence[str], record: RuntimeRecord, within_s: float
) -> None:
    async with _load(stage, words, think_s=0.5) as load:
        load.set_clients(CANARY_CLIENTS)
        async with background(_collect_evidence(stage, record)):
            title = f"canary with {json.dumps(CHANGE)}"
            ending = await release(stage, load, NAME, title, CHANGE, within_s=2 * within_s)
        await load.finish()
        verdict = f"{ending.phase}: {ending.reason}; {_note_ends(record, load)}"
        record.add("canary", ending.took_s, verdict)


def _load(stage: Stage, words: Sequence[str], think_s: float = 0.0) -> Load:
    workload = Workload(NAME, words, prompt_words=60, max_tokens=48, seed=1, think_s=think_s)
    return Load(stage.cluster.gateway_url, workload)


def _note_ends(record: RuntimeRecord, load: Load) -> str:
    """Add the outcomes of a load to the record, and return them as text."""
    ends = Counter(outcome.end for outcome in load.outcomes)
    record.ends += ends
    bad = [f"{each.status} {each.detail}" for each in load.outcomes if each.end is not End.DONE]
    return ", ".join(f"{count} {end}" for end, count in ends.items()) + "".join(bad[:1])


async def _watch_decisions(stage: Stage, record: RuntimeRecord) -> None:
    """Record each change of the desired replicas, until cancelled."""
    started_s, before = monotonic(), 1
    while True:
        scaling = (await stage.view(NAME)).scaling
        desired = scaling.get("desiredReplicas", before)
        if desired != before:
            record.decisions.append((monotonic() - started_s, desired, scaling["message"]))
            before = desired
        await asyncio.sleep(0.5)


async def _collect_evidence(stage: Stage, record: RuntimeRecord) -> None:
    """Keep the last evidence of the canary, until cancelled."""
    while True:
        found = (await stage.view(NAME)).status.get("rollout", {}).get("evidence")
        record.evidence = found or record.evidence
        await asyncio.sleep(1)


def _is_ready(view: View) -> bool:
    return view.condition("Ready").get("status") == "True" and view.ready == 1


def _has(engines: int) -> Callable[[View], bool]:
    return lambda view: view.ready == engines and len(view.pods) == engines
