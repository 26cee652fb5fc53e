"""Follows a spec from the API server to a running engine, and compares each verdict with the next."""

import asyncio
import contextlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from pydantic import ValidationError
from tests.support.cluster.engine_agreement import disagreements

from penstock.api.conversion.convert import InvalidService, to_core
from penstock.api.inferenceservice.kind import KIND, InferenceServiceSpec
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.core.manifests.engine_pod import preflight_pod, serve_pod
from penstock.core.observed.refusal_message import refusal_message
from penstock.core.runtimes.paths import CHAT_TEMPLATE_MOUNT, DRAFT_MOUNT, MODEL_MOUNT
from penstock.core.spec.service import API_VERSION, ENGINE_PORT, PRE_STOP_S, ServiceSpec
from penstock.core.spec.settings import PENSTOCK
from penstock.errors import Rejected
from penstock.local import processes
from penstock.local.node.container import Container, search_path

Json = Any

IMAGE = "penstock"
START_TIMEOUT_S = 120
QUESTION = {"max_tokens": 3, "temperature": 0}
# The stage that refused a spec, or whether its engine was started.
KINDS = ("schema", "runtime", "preflight", "not started", "started")


@dataclass
class Outcome:
    """Outcome of a spec. kind: one of KINDS. refusal: its message. problems: unexpected results."""

    number: int
    spec: Json
    kind: str = "schema"
    refusal: str = ""
    problems: list[str] = field(default_factory=list)


class SpecRun:
    """Follows specs. models: folder with a folder for each model. slots: one for each engine at a time."""

    def __init__(self, kube: Kube, models: Path, folder: Path, slots: asyncio.Semaphore) -> None:
        self._kube = kube
        self._models = models
        self._folder = folder
        self._slots = slots

    async def follow(self, number: int, spec: Json) -> Outcome:
        outcome = Outcome(number, spec)
        service = await self._admit(outcome)
        if service is None:
            return outcome
        async with self._slots:
            verdict = await self._preflight(outcome, service)
            if verdict is not None and outcome.kind == "started":
                await self._serve(outcome, service, verdict)
        return outcome

    async def _admit(self, outcome: Outcome) -> ServiceSpec | None:
        """The service as the operator reads it; None if the API server or the operator refuses it."""
        metadata = {"name": "chat", "namespace": "default"}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": outcome.spec}
        ours = _schema_error(outcome.spec)
        try:
            stored = await self._kube.create(INFERENCE_SERVICES, "default", body, dryRun="All")
        except Rejected as error:
            outcome.refusal = str(error)
            if ours is None:
                outcome.problems.append("the API server refuses what api.convert accepts")
            _require_field(outcome)
            return None
        if ours is not None:
            outcome.refusal = ours
            outcome.problems.append("api.convert refuses what the API server accepts")
            return None
        stored["metadata"] |= {
            "uid": "u",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        try:
            return to_core(stored)
        except InvalidService as error:
            outcome.kind, outcome.refusal = "runtime", str(error)
            _require_field(outcome)
            return None

    async def _preflight(self, outcome: Outcome, service: ServiceSpec) -> Json:
        """Run the preflight, and set the kind of the outcome. Returns the verdict; None if it refuses."""
        container = self._container(outcome, service, "preflight")
        await container.start()
        code = await container.wait()
        message = container.message(code)
        try:
            verdict = json.loads(message)
        except ValueError:
            verdict = {"ok": False, "message": message}
            outcome.problems.append("the preflight has no verdict")
        if (code == 0) != verdict["ok"]:
            outcome.problems.append(f"the preflight exited with {code} and says {message}")
        if not verdict["ok"]:
            outcome.kind, outcome.refusal = "preflight", refusal_message(verdict)
            _require_field(outcome)
            return None
        runs_here = service.settings.get("runtime.type", PENSTOCK) == PENSTOCK
        runs_here = runs_here and service.resources.device == "cpu"
        outcome.kind = "started" if runs_here else "not started"
        return verdict

    async def _serve(self, outcome: Outcome, service: ServiceSpec, verdict: Json) -> None:
        container = self._container(outcome, service, "engine")
        await container.start()
        ended = asyncio.create_task(container.wait())
        try:
            async with httpx.AsyncClient(
                base_url=f"http://{_pod_ip(outcome.number)}:{ENGINE_PORT}"
            ) as client:
                if await _is_ready(client, ended):
                    outcome.problems += await self._check(container, service, verdict, client)
                    outcome.problems += self._memory_problems(outcome, service)
                    outcome.problems += await _stop(container, service, ended)
                    return
            code = await ended if ended.done() else "no"
            outcome.problems.append(
                f"crash loop: exit code {code} at the start: {container.message(1)[-600:]}"
            )
        finally:
            container.kill()
            await ended

    async def _check(
        self, container: Container, service: ServiceSpec, verdict: Json, client: httpx.AsyncClient
    ) -> list[str]:
        """Ask the engine, and compare what it answers and reports with the spec."""
        has_template = (
            "engine.parsers.chatTemplate.configMapKeyRef.name" in service.settings
            or not service.model_uri.endswith("bare")
        )
        route, prompt = "completions", {"prompt": "One queue"}
        if has_template:
            route, prompt = "chat/completions", {"messages": [{"role": "user", "content": "One?"}]}
        request = {"model": service.model_name, **prompt, **QUESTION}
        answer = await client.post(f"/v1/{route}", json=request, timeout=60)
        if answer.status_code == 504 and "engine.scheduling.requestTimeout" in service.settings:
            return []  # some timeouts are shorter than any answer takes
        if answer.status_code != 200 or answer.json()["model"] != service.model_name:
            return [f"the answer is {answer.status_code} {answer.text[:300]}"]
        models, metrics = await client.get("/v1/models"), await client.get("/metrics")
        return disagreements(
            service, verdict, models.json(), metrics.text, container.log.read_text()
        )

    def _memory_problems(self, outcome: Outcome, service: ServiceSpec) -> list[str]:
        used_bytes = 0
        for process in processes.find_in_pod(_uid(outcome.number, "engine")):
            with contextlib.suppress(psutil.Error):
                used_bytes += process.memory_full_info().pss
        if used_bytes > service.resources.memory_bytes:
            return [f"{used_bytes} bytes of memory are used"]
        return []

    def _container(self, outcome: Outcome, service: ServiceSpec, role: str) -> Container:
        make = preflight_pod if role == "preflight" else serve_pod
        spec = make(service, IMAGE)["containers"][0]
        ip = _pod_ip(outcome.number)
        folder = self._folder / f"{outcome.number}-{role}"
        mounts = dict.fromkeys((MODEL_MOUNT, DRAFT_MOUNT), str(self._models))
        mounts |= {CHAT_TEMPLATE_MOUNT: str(self._models / "templates")}
        env = {each["name"]: each.get("value", ip) for each in spec["env"]}
        marks = {processes.POD_UID: _uid(outcome.number, role), processes.CONTAINER: spec["name"]}
        machine = {
            name: value for name, value in os.environ.items() if name != "PENSTOCK_CPU_LIMIT"
        }
        return Container(
            spec, env=env, machine=machine | {"PATH": search_path()}, marks=marks, mounts=mounts,
            folder=folder, pod_ip=ip,
        )  # fmt: skip


def _schema_error(spec: Json) -> str | None:
    try:
        InferenceServiceSpec.model_validate(spec)
    except ValidationError as error:
        return str(error)
    return None


def _require_field(outcome: Outcome) -> None:
    if "spec." not in outcome.refusal and not outcome.refusal.startswith("spec:"):
        outcome.problems.append("the refusal names no field")
    if "--" in outcome.refusal and "extraArgs" not in outcome.refusal:
        outcome.problems.append("the refusal names a flag")


def _pod_ip(number: int) -> str:
    return f"127.77.{number // 250}.{number % 250 + 1}"


def _uid(number: int, role: str) -> str:
    return f"random-specs-{os.getpid()}-{number}-{role}"


async def _is_ready(client: httpx.AsyncClient, ended: asyncio.Task[int]) -> bool:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s and not ended.done():
        with contextlib.suppress(httpx.TransportError):
            if (await client.get("/ready")).status_code == 200:
                return True
        await asyncio.sleep(0.1)
    return False


async def _stop(container: Container, service: ServiceSpec, ended: asyncio.Task[int]) -> list[str]:
    """End the engine as the kubelet does after the preStop hook."""
    container.terminate()
    try:
        code = await asyncio.wait_for(
            asyncio.shield(ended), service.termination_grace_s - PRE_STOP_S
        )
    except TimeoutError:
        return ["the engine did not stop within its grace period"]
    return [] if code == 0 else [f"the engine stopped with exit code {code}"]
