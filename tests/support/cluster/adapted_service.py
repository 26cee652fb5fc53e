"""A service with LoRA adapters on a running cluster, and what its engines and its statuses list."""

import asyncio
import json
from collections.abc import Mapping, Sequence, Set

import aiohttp
from tests.support.cluster.manifests import adapter_manifest, service_manifest

from penstock.chart.names import LEASE_NAME, NAMESPACE, OPERATOR
from penstock.clients.kubernetes.leader import placement
from penstock.clients.kubernetes.resources import LORA_ADAPTERS
from penstock.clients.machine.clock import monotonic
from penstock.clients.pods.engine_adapters import EngineAdapters, EngineFailure
from penstock.core.formats.addresses import host_port
from penstock.core.observed.lora_engine import LoraRuntime
from penstock.core.spec.service import ENGINE_PORT, SERVICE_LABEL, Object
from penstock.demo.stage import Stage, poll_until
from penstock.errors import KubeError

NAME = "adapted"
CLAIM = "adapters"
ENGINES = 2
NUM_TOKENS = 12

# Copies as (name in engines, pod).
Copies = frozenset[tuple[str, str]]


def service(engine: Object | None = None, **spec: object) -> Object:
    """Engines with memory for 4 adapters each, of which 2 run in one batch.

    They compute in float32, as the reference does: bfloat16 has other answers where two tokens are close.
    engine: its fields replace those of spec.engine here. spec: fields that replace those of spec.
    """
    lora = {"maxAdapters": 2, "maxCPUAdapters": 4, "maxRank": 16, "sources": [f"pvc://{CLAIM}"]}
    common: Object = {
        "engine": {
            "maxModelLen": 256, "maxNumSeqs": 8, "kvCache": {"memory": "8Mi"},
            "dtype": "float32", "lora": lora, **(engine or {}),
        },
        "scaling": {"minReplicas": ENGINES, "maxReplicas": ENGINES},
        "terminationGracePeriodSeconds": 18,
    }  # fmt: skip
    return service_manifest(NAME, common | spec)


def adapter(name: str, folder: str, **placement: object) -> Object:
    return adapter_manifest(name, NAME, f"pvc://{CLAIM}/{folder}", placement=placement)


class AdaptedService:
    """Requests to the service through the gateway, and the copies of its adapters."""

    def __init__(self, stage: Stage, runtime: LoraRuntime = "Penstock") -> None:
        self.stage = stage
        self._runtime: LoraRuntime = runtime
        self._engines = EngineAdapters()
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))

    async def close(self) -> None:
        await self._session.close()
        await self._engines.close()

    async def ask(self, model: str, prompt: Sequence[int]) -> tuple[int, Object]:
        """Complete a prompt greedily. Returns the status and the body of the answer."""
        body = {
            "model": model, "prompt": list(prompt), "max_tokens": NUM_TOKENS, "temperature": 0,
            "ignore_eos": True, "return_token_ids": True,
        }  # fmt: skip
        url = f"{self.stage.cluster.gateway_url}/v1/completions"
        async with self._session.post(url, json=body) as answer:
            return answer.status, await answer.json()

    async def tokens(self, model: str, prompt: Sequence[int]) -> list[int]:
        status, body = await self.ask(model, prompt)
        assert status == 200, (model, body)
        tokens: list[int] = body["choices"][0]["token_ids"]
        return tokens

    async def models(self) -> Mapping[str, Object]:
        """The gateway's models by name."""
        async with self._session.get(f"{self.stage.cluster.gateway_url}/v1/models") as answer:
            return {each["id"]: each for each in (await answer.json())["data"]}

    async def on_engines(self) -> Copies:
        """The copies in memory as the ready engines list them."""
        engines = await self._addresses()
        lists = await asyncio.gather(
            *(
                self._engines.list(self.stage.namespace, address, self._runtime)
                for address in engines.values()
            )
        )
        found: set[tuple[str, str]] = set()
        for pod, listed in zip(engines, lists, strict=True):
            assert not isinstance(listed, EngineFailure), listed
            copies = listed.copies.items()
            found |= {(name, pod) for name, copy in copies if copy.state == "Resident"}
        return frozenset(found)

    async def unload_by_hand(self) -> None:
        """Unload all copies from the engines themselves."""
        engines = await self._addresses()
        for name, pod in await self.on_engines():
            assert await self._engines.unload(engines[pod], name) is None

    async def _addresses(self) -> Mapping[str, str]:
        """The ready engines as host:port, by pod."""
        pods = (await self.stage.view(NAME)).pods
        return {pod.name: host_port(pod.address, ENGINE_PORT) for pod in pods if pod.is_ready}

    async def in_statuses(self) -> Copies:
        """The copies in memory as the statuses of the adapters list them."""
        found: set[tuple[str, str]] = set()
        for name, status in (await self.statuses()).items():
            for each in status.get("instances", []):
                if each["state"] == "Loaded":
                    revision = each.get("revision", status["revision"])
                    found.add((f"{name}@{revision}", each["podName"]))
        return frozenset(found)

    async def statuses(self) -> Mapping[str, Object]:
        bodies, _ = await self.stage.kube.list(LORA_ADAPTERS, self.stage.namespace)
        return {each["metadata"]["name"]: each.get("status", {}) for each in bodies}

    async def wait_for(self, name: str, within_s: float = 30, **reasons: str) -> Object:
        """Wait until conditions of an adapter have these reasons. Returns its status."""
        status: Object = {}

        async def has_reasons() -> bool:
            nonlocal status
            status = (await self.statuses()).get(name, {})
            found = {each["type"]: each["reason"] for each in status.get("conditions", [])}
            return found.items() >= reasons.items()

        try:
            await poll_until(has_reasons, within_s=within_s, what=f"{name} with {reasons}")
        except TimeoutError as error:
            raise AssertionError(f"{error}: {status}") from error
        return status

    async def wait_for_true_statuses(self, within_s: float = 6) -> Copies:
        """Wait until the statuses list what the engines list. Returns it."""
        copies: Copies = frozenset()

        async def are_equal() -> bool:
            nonlocal copies
            copies = await self.on_engines()
            return copies == await self.in_statuses()

        await poll_until(are_equal, within_s=within_s, what="statuses that list what engines have")
        return copies

    async def lag_s(self) -> float:
        """Wait until the statuses list what the engines list. Returns the seconds."""
        started_s = monotonic()
        await self.wait_for_true_statuses()
        return monotonic() - started_s

    async def wait_for_copies(self, copies: Set[tuple[str, str]], within_s: float = 15) -> None:
        """Wait until the engines list these copies, besides others."""

        async def are_there() -> bool:
            return copies <= await self.on_engines()

        await poll_until(are_there, within_s=within_s, what=f"the copies {sorted(copies)}")

    async def wait_for_settled_copies(self, within_s: float = 60) -> Copies:
        """Wait until no copy has changed for three seconds. Returns the copies."""
        copies, since_s = await self.on_engines(), monotonic()

        async def are_settled() -> bool:
            nonlocal copies, since_s
            found = await self.on_engines()
            if found != copies:
                copies, since_s = found, monotonic()
            return monotonic() - since_s >= 3

        await poll_until(are_settled, within_s=within_s, what="copies that do not change")
        return copies

    async def wait_for_models(self, names: Sequence[str]) -> None:
        """Wait until the gateway knows these model names."""

        async def are_known() -> bool:
            return set(names) <= (await self.models()).keys()

        await poll_until(are_known, within_s=15, what="the adapters' names at the gateway")

    async def unload(self, name: str, pod: str) -> None:
        """Unload an adapter as a client of the engine would. name: in engines."""
        (address,) = (
            host_port(each.address, ENGINE_PORT)
            for each in (await self.stage.view(NAME)).pods
            if each.name == pod
        )
        assert await self._engines.unload(address, name) is None

    async def restart_operator(self) -> None:
        """Delete the operator's pods, and wait until the next operator has placed the adapters."""
        selector = f"app.kubernetes.io/name={OPERATOR}"
        self.stage.kubectl("delete", "pod", "-n", NAMESPACE, "-l", selector, "--wait")

        async def is_placed() -> bool:
            service = f"{self.stage.namespace}/{NAME}"
            try:
                await placement(self.stage.kube, NAMESPACE, LEASE_NAME, service)
            except KubeError:
                return False
            return True

        await poll_until(is_placed, within_s=60, what="a placement of the adapters")

    async def restarts(self) -> int:
        """Restarts of the engines' containers."""
        pods = json.loads(
            self.stage.kubectl("get", "pods", "-l", f"{SERVICE_LABEL}={NAME}", "-o", "json")
        )["items"]
        return sum(
            each["restartCount"]
            for pod in pods
            for each in pod["status"].get("containerStatuses", [])
        )
