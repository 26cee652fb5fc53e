"""Runs a service's life cycle while a proxy kills the operator at its writes, and records the end state.

Life cycle: the service is applied and becomes Ready; a new revision with more replicas is rolled out; it is
promoted, or a person aborts it. A proxy between the operator and the API server kills the operator at chosen
writes or at all of them, either before the write is forwarded or after it and before the response.
"""

import asyncio
import os
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.support.cluster.killing_proxy import KillingProxy, Moment
from tests.support.cluster.manifests import service_manifest

from penstock.cli.servers.operator import LEADERSHIP_LOST
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    LEASES,
    NAMESPACES,
    PODS,
)
from penstock.core.observed.rollout_phases import Phase
from penstock.core.rollout import commands
from penstock.core.rollout.commands import Action
from penstock.core.spec.rollout import Strategy
from penstock.core.spec.service import REVISION_LABEL, SERVICE_LABEL
from penstock.demo.stage import poll_until
from penstock.local.cluster import Cluster
from penstock.local.components import kubeconfig

SERVICE = "chat"
FIRST_MODEL_LEN = 256
# Length of a failed operator's log tail.
MAX_SAID_CHARS = 4000
# Time limit of each part of a life cycle, and its factor if every write kills an operator.
PATIENCE_S, WHEN_KILLED = 120.0, 5
# Merged into the spec once the service is Ready: another revision, and one engine more.
CHANGE: Object = {
    "engine": {"maxModelLen": 128},
    "scaling": {"minReplicas": 2, "maxReplicas": 2},
}


Ending = Literal["Promoted", "Aborted"]

# A person's command by ending, and the phase for it. Without a command the revision is promoted.
_WORDS: dict[tuple[Strategy, Ending], tuple[Phase, Action]] = {
    ("Canary", "Promoted"): ("Judging", "promote"),
    ("Canary", "Aborted"): ("Judging", "abort"),
    ("BlueGreen", "Aborted"): ("Promoting", "abort"),
    ("Rolling", "Aborted"): ("Replacing", "abort"),
}
# Recreate has no rollback: a person restores the spec.

# Writes of every life cycle that ends with the new revision, however status writes are batched.
_ALWAYS = {
    "patch controllerrevisions": 2,
    "create pods": 2,  # a preflight of each revision
    "patch deployments": 2,
    "patch deployments/scale": 2,
    "delete deployments": 1,
    "delete pods": 1,
    "patch inferenceservices/status": 8,
    "create events": 3,
}
_OCCUR: dict[Strategy, dict[str, int]] = {
    "Rolling": _ALWAYS,
    "BlueGreen": _ALWAYS,
    "Recreate": _ALWAYS,
    # Canary adds a control deployment and phases.
    "Canary": _ALWAYS
    | {"patch deployments": 3, "delete deployments": 2, "patch inferenceservices/status": 12},
}


def moments(strategy: Strategy) -> tuple[Moment, ...]:
    """Writes that every life cycle of this strategy has if its revision is promoted."""
    return tuple(
        Moment(write, nth, after)
        for write, times in _OCCUR[strategy].items()
        for nth in range(1, times + 1)
        for after in (False, True)
    )


@dataclass(frozen=True, slots=True)
class Life:
    """Result of a life cycle.

    writes: (verb, resource). kills: killed operators. missed: moments not reached.
    """

    end: Mapping[str, Any]
    writes: tuple[str, ...]
    kills: int
    missed: frozenset[Moment]


class OperatorEnded(Exception):
    """An operator exited without being killed."""


async def survive(
    cluster: Cluster,
    kube: Kube,
    moments: Collection[Moment] | None,
    model_uri: str,
    strategy: Strategy,
    ending: Ending = "Promoted",
) -> Life:
    """Run one life cycle in its own namespace. Each operator killed at a moment is replaced by another.

    moments: None for every write. Raises TimeoutError if the service does not settle, or OperatorEnded.
    """
    namespace = f"crash-{secrets.token_hex(4)}"
    await kube.create(NAMESPACES, None, {"metadata": {"name": namespace}})
    proxy = KillingProxy(cluster, namespace, moments)
    async with proxy.listening() as url:
        config = cluster.folder / f"kubeconfig-{namespace}"
        config.write_text(kubeconfig(url, cluster.folder / "pki" / "ca.crt", {"token": "unused"}))
        operators = asyncio.create_task(_run_operators(proxy, kube, config, namespace))
        patience_s = PATIENCE_S * (WHEN_KILLED if moments is None else 1)
        made = _Life(kube, namespace, strategy, ending, patience_s)
        life = asyncio.create_task(made.live(model_uri))
        try:
            await asyncio.wait({operators, life}, return_when=asyncio.FIRST_COMPLETED)
            if operators.done():
                await operators
            end = await life
            return Life(end, tuple(proxy.writes), proxy.kills, frozenset(proxy.to_come))
        finally:
            for task in (life, operators):
                task.cancel()
            await asyncio.gather(life, operators, return_exceptions=True)
            config.unlink()
            _log(config).unlink(missing_ok=True)
            # A namespace keeps its services, and so their model names, until its pods have ended.
            await kube.delete(INFERENCE_SERVICES, namespace, SERVICE)
            await kube.delete(NAMESPACES, None, namespace)


async def _run_operators(proxy: KillingProxy, kube: Kube, config: Path, namespace: str) -> None:
    """Run operators one after the other, until cancelled.

    A new one starts when the proxy killed one, or when one lost its Lease on a busy machine. Raises
    OperatorEnded.
    """
    try:
        while True:
            kills = proxy.kills
            proxy.operator = await _start(config, namespace)
            returncode = await proxy.operator.wait()
            said = _log(config).read_text()
            if proxy.kills == kills and LEADERSHIP_LOST not in said:
                raise OperatorEnded(f"exit status {returncode}: {said[-MAX_SAID_CHARS:]}")
            # A dead leader's Lease expires after ten seconds; deleting it saves the wait.
            await kube.delete(LEASES, namespace, "penstock-operator")
    finally:
        if proxy.operator is not None and proxy.operator.returncode is None:
            proxy.operator.kill()
            await proxy.operator.wait()


async def _start(config: Path, namespace: str) -> asyncio.subprocess.Process:
    environment = {k: v for k, v in os.environ.items() if k != "PENSTOCK_SERVICE_ACCOUNT_DIR"}
    with _log(config).open("wb") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock", "operator", "run", "--engine-image", "penstock",
            "--host", "127.0.0.1", "--port", "0", "--lease-namespace", namespace,
            "--allowed-host-path", "/",
            env=environment | {"KUBECONFIG": str(config)},
            stdout=log, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip


def _log(config: Path) -> Path:
    """Log file of the operator with this kubeconfig."""
    return config.with_name(f"{config.name}.log")


class _Life:
    """Life cycle of one service. patience_s: time limit of each part."""

    def __init__(
        self, kube: Kube, namespace: str, strategy: Strategy, ending: Ending, patience_s: float
    ) -> None:
        self._kube, self._namespace = kube, namespace
        self._strategy, self._ending = strategy, ending
        self._patience_s = patience_s

    async def live(self, model_uri: str) -> dict[str, object]:
        body = _service(model_uri, self._strategy, self._ending)
        await self._kube.create(INFERENCE_SERVICES, self._namespace, body)
        await self._until(self._has_settled, "settled")
        await self._merge({"spec": CHANGE})
        if (self._strategy, self._ending) == ("Recreate", "Aborted"):
            await self._until(self._is_starting, "stopped the old pods")
            await self._merge({"spec": {"engine": {"maxModelLen": FIRST_MODEL_LEN}}})
        elif (self._strategy, self._ending) in _WORDS:
            await self._until(self._has_spoken, "far enough for a word")
        await self._until(self._has_settled, "settled again")
        await asyncio.sleep(3)  # time for writes that an inconsistent operator would still make
        return await end_state(self._kube, self._namespace)

    async def _until(self, check: Callable[[], Awaitable[bool]], what: str) -> None:
        await poll_until(check, within_s=self._patience_s, what=what)

    async def _merge(self, body: Object) -> None:
        await self._kube.merge(
            INFERENCE_SERVICES, self._namespace, SERVICE, body, manager="crashes"
        )

    async def _rollout(self) -> Object:
        found = await self._kube.get(INFERENCE_SERVICES, self._namespace, SERVICE)
        rollout: Object = found["status"]["rollout"]
        return rollout

    async def _is_starting(self) -> bool:
        return await self._is_in("Starting")

    async def _is_in(self, phase: Phase) -> bool:
        """Whether the rollout is in the phase and its pods exist, so that a command's effect is the same."""
        rollout = await self._rollout()
        children = await _children(self._kube, self._namespace)
        begun = {c["metadata"]["labels"][REVISION_LABEL] for p, c in children if p == "deployments"}
        return rollout["phase"] == phase and rollout.get("revision") in begun

    async def _has_spoken(self) -> bool:
        """Give the person's command once its phase is reached."""
        phase, action = _WORDS[self._strategy, self._ending]
        if not await self._is_in(phase):
            return False
        rollout = await self._rollout()
        text = commands.format_command(action, rollout["revision"], "1")
        await self._merge({"metadata": {"annotations": {commands.ANNOTATION: text}}})
        return True

    async def _has_settled(self) -> bool:
        """Whether the rollout has ended, with the decided replicas and only the final revision's children."""
        found = await self._kube.get(INFERENCE_SERVICES, self._namespace, SERVICE)
        status = found.get("status", {})
        is_changed = found["metadata"]["generation"] > 1
        calm = "Rejected" if is_changed and self._is_rejected else "Stable"
        children = await _children(self._kube, self._namespace)
        wanted = found["spec"].get("scaling", {}).get("minReplicas", 1)
        return (
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status["rollout"]["phase"] == calm
            and status.get("scaling", {}).get("desiredReplicas")
            == status["readyReplicas"]
            == wanted
            and {c["metadata"]["labels"][REVISION_LABEL] for _, c in children}
            == {status["stableRevision"]}
        )

    @property
    def _is_rejected(self) -> bool:
        return self._ending == "Aborted" and self._strategy != "Recreate"


def _service(model_uri: str, strategy: Strategy, ending: Ending) -> Object:
    rollout: Object = {"strategy": strategy}
    if strategy == "BlueGreen":
        rollout["blueGreen"] = {"scaleDownDelay": "2s" if ending == "Promoted" else "10m"}
    return service_manifest(
        SERVICE,
        {
            "model": {"uri": model_uri},
            "engine": {"maxModelLen": FIRST_MODEL_LEN, "kvCache": {"memory": "8Mi"}},
            "rollout": rollout,
        },
    )


async def _children(kube: Kube, namespace: str) -> list[tuple[str, Object]]:
    """Children of the service as (plural, object)."""
    found = []
    for resource in (DEPLOYMENTS, PODS):
        items, _ = await kube.list(resource, namespace, labelSelector=f"{SERVICE_LABEL}={SERVICE}")
        found += [(resource.plural, item) for item in items]
    return found


async def end_state(kube: Kube, namespace: str) -> dict[str, object]:
    """Children by kind and name, without random parts, and the stable fields of the status."""
    found = await kube.get(INFERENCE_SERVICES, namespace, SERVICE)
    # A pod template's hash is the digits of 32 bits in letters: up to ten of them.
    children = [
        f"{plural}/{re.sub(r'-[a-z0-9]{1,10}-[a-z0-9]{5}$', '', child['metadata']['name'])}"
        for plural, child in await _children(kube, namespace)
    ]
    status = found["status"]
    rejected = status["rollout"].get("rejected") or {}
    history, _ = await kube.list(CONTROLLER_REVISIONS, namespace)
    return {
        "children": sorted(children),
        "conditions": {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]},
        "traffic": status["traffic"],
        "phase": status["rollout"]["phase"],
        "rolled out": status["rollout"].get("revision"),
        "rejected": (rejected.get("revision"), rejected.get("message")),
        "history": sorted(entry["revision"] for entry in history),
        "replicas": (status["replicas"], status["readyReplicas"]),
        "desired": status["scaling"]["desiredReplicas"],
    }
