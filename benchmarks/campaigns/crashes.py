"""A service's life with the operator killed before or after its writes, and how it ends.

The life: applied, Ready, changed to another revision with more replicas; then the revision takes over,
or a person takes it back. A proxy stands between the operator and the API server. It kills the operator
at chosen writes or at all, either before the write goes on or after it was made and before the answer
comes back.
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

from campaigns.killing_proxy import KillingProxy, Moment

from penstock.clients.kube import Kube, Object
from penstock.clients.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    LEASES,
    NAMESPACES,
    PODS,
)
from penstock.controller.app import LeadershipLost
from penstock.core.observed.rollout_state import Phase
from penstock.core.rollout import commands
from penstock.core.rollout.commands import Action
from penstock.core.spec.rollout import Strategy
from penstock.core.spec.service import REVISION_LABEL, SERVICE_LABEL
from penstock.demo.stage import eventually
from penstock.local.cluster import Cluster
from penstock.local.components import kubeconfig

SERVICE = "chat"
FIRST_MODEL_LEN = 256
# The end of a dead operator's log.
MAX_SAID_CHARS = 4000
# For each part of a life; so many times that where every write kills an operator.
PATIENCE_S, WHEN_KILLED = 120.0, 5
# Merged into the spec once the service is Ready: another revision, and one engine more.
CHANGE: Object = {
    "engine": {"maxModelLen": 128},
    "scaling": {"minReplicas": 2, "maxReplicas": 2},
}


Ending = Literal["Promoted", "Aborted"]

# What a person says, and in which phase. Without a word the revision takes over by itself.
_WORDS: dict[tuple[Strategy, Ending], tuple[Phase, Action]] = {
    ("Canary", "Promoted"): ("Judging", "promote"),
    ("Canary", "Aborted"): ("Judging", "abort"),
    ("BlueGreen", "Aborted"): ("Promoting", "abort"),
    ("Rolling", "Aborted"): ("Replacing", "abort"),
}
# Recreate has nothing to go back to: there a person restores the spec.

# What every life that ends with another revision has, however many writes of the status fall together.
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
    # With a control, and more phases.
    "Canary": _ALWAYS
    | {"patch deployments": 3, "delete deployments": 2, "patch inferenceservices/status": 12},
}


def moments(strategy: Strategy) -> tuple[Moment, ...]:
    """All that a life of this strategy has for certain, whose revision is promoted."""
    return tuple(
        Moment(write, nth, after)
        for write, times in _OCCUR[strategy].items()
        for nth in range(1, times + 1)
        for after in (False, True)
    )


@dataclass(frozen=True, slots=True)
class Life:
    """writes: verb and resource of each. kills: of operators. missed: the moments that never came."""

    end: Mapping[str, Any]
    writes: tuple[str, ...]
    kills: int
    missed: frozenset[Moment]


class OperatorEnded(Exception):
    """An operator ended that nobody had killed."""


async def survive(
    cluster: Cluster,
    kube: Kube,
    moments: Collection[Moment] | None,
    model_uri: str,
    strategy: Strategy,
    ending: Ending = "Promoted",
) -> Life:
    """Live a service's life; an operator that dies at one of `moments` is followed by another.

    moments: None for every write. The life has a namespace of its own. Raises TimeoutError when the
    service does not come to rest, or OperatorEnded.
    """
    namespace = f"crash-{secrets.token_hex(4)}"
    await kube.create(NAMESPACES, None, {"metadata": {"name": namespace}})
    proxy = KillingProxy(cluster, namespace, moments)
    async with proxy.listening() as url:
        config = cluster.folder / f"kubeconfig-{namespace}"
        config.write_text(kubeconfig(url, cluster.folder / "pki" / "ca.crt", "unused"))
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
            await kube.delete(NAMESPACES, None, namespace)


async def _run_operators(proxy: KillingProxy, kube: Kube, config: Path, namespace: str) -> None:
    """One operator, and another each time the proxy has killed one, or it could not renew its Lease in
    time, as happens where processors are short. Raises OperatorEnded."""
    try:
        while True:
            kills = proxy.kills
            proxy.operator = await _start(config, namespace)
            returncode = await proxy.operator.wait()
            said = _log(config).read_text()
            if proxy.kills == kills and LeadershipLost.__name__ not in said:
                raise OperatorEnded(f"exit status {returncode}: {said[-MAX_SAID_CHARS:]}")
            # A dead leader's Lease runs out by itself, in ten seconds; this saves the wait.
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
            env=environment | {"KUBECONFIG": str(config)},
            stdout=log, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip


def _log(config: Path) -> Path:
    """Of the operator that runs with it."""
    return config.with_name(f"{config.name}.log")


class _Life:
    """patience_s: for each part of it."""

    def __init__(
        self, kube: Kube, namespace: str, strategy: Strategy, ending: Ending, patience_s: float
    ) -> None:
        self._kube, self._namespace = kube, namespace
        self._strategy, self._ending = strategy, ending
        self._patience_s = patience_s

    async def live(self, model_uri: str) -> dict[str, object]:
        body = _service(self._namespace, model_uri, self._strategy, self._ending)
        await self._kube.create(INFERENCE_SERVICES, self._namespace, body)
        await self._until(self._has_settled, "settled")
        await self._merge({"spec": CHANGE})
        if (self._strategy, self._ending) == ("Recreate", "Aborted"):
            await self._until(self._is_starting, "stopped the old pods")
            await self._merge({"spec": {"engine": {"maxModelLen": FIRST_MODEL_LEN}}})
        elif (self._strategy, self._ending) in _WORDS:
            await self._until(self._has_spoken, "far enough for a word")
        await self._until(self._has_settled, "settled again")
        await asyncio.sleep(3)  # whatever a confused operator would still do
        return await end_state(self._kube, self._namespace)

    async def _until(self, check: Callable[[], Awaitable[bool]], what: str) -> None:
        await eventually(check, within_s=self._patience_s, what=what)

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
        """And the revision that is rolled out has its pods, so that a word means the same in each life."""
        rollout = await self._rollout()
        children = await _children(self._kube, self._namespace)
        begun = {c["metadata"]["labels"][REVISION_LABEL] for p, c in children if p == "deployments"}
        return rollout["phase"] == phase and rollout.get("revision") in begun

    async def _has_spoken(self) -> bool:
        """The person's word, once it is time for it."""
        phase, action = _WORDS[self._strategy, self._ending]
        if not await self._is_in(phase):
            return False
        rollout = await self._rollout()
        text = commands.format_command(action, rollout["revision"], "1")
        await self._merge({"metadata": {"annotations": {commands.ANNOTATION: text}}})
        return True

    async def _has_settled(self) -> bool:
        """At rest as the spec stands, scaled as decided, and nothing left of another revision."""
        found = await self._kube.get(INFERENCE_SERVICES, self._namespace, SERVICE)
        status = found.get("status", {})
        is_changed = found["metadata"]["generation"] > 1
        calm = "Rejected" if is_changed and self._is_rejected else "Stable"
        children = await _children(self._kube, self._namespace)
        wanted = found["spec"].get("scaling", {}).get("minReplicas", 1)
        return (
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status["rollout"]["phase"] == calm
            and status.get("scaling", {}).get("desired") == status["readyReplicas"] == wanted
            and {c["metadata"]["labels"][REVISION_LABEL] for _, c in children}
            == {status["stableRevision"]}
        )

    @property
    def _is_rejected(self) -> bool:
        return self._ending == "Aborted" and self._strategy != "Recreate"


def _service(namespace: str, model_uri: str, strategy: Strategy, ending: Ending) -> Object:
    kept = "2s" if ending == "Promoted" else "10m"
    return {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": SERVICE, "namespace": namespace},
        "spec": {
            "model": {"uri": model_uri},
            "engine": {"maxModelLen": FIRST_MODEL_LEN, "kvCache": {"memory": "8Mi"}},
            "resources": {"memory": "1Gi"},
            "rollout": {"strategy": strategy, "blueGreen": {"previousKept": kept}},
        },
    }


async def _children(kube: Kube, namespace: str) -> list[tuple[str, Object]]:
    """(plural, object) of what belongs to the service."""
    found = []
    for resource in (DEPLOYMENTS, PODS):
        items, _ = await kube.list(resource, namespace, labelSelector=f"{SERVICE_LABEL}={SERVICE}")
        found += [(resource.plural, item) for item in items]
    return found


async def end_state(kube: Kube, namespace: str) -> dict[str, object]:
    """Children by kind and name without random parts, and what the status says of them."""
    found = await kube.get(INFERENCE_SERVICES, namespace, SERVICE)
    children = [
        f"{plural}/{re.sub(r'-[a-z0-9]{8,10}-[a-z0-9]{5}$', '', child['metadata']['name'])}"
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
        "rejected": (rejected.get("revision"), rejected.get("reason")),
        "history": sorted(entry["revision"] for entry in history),
        "replicas": (status["replicas"], status["readyReplicas"]),
        "desired": status["scaling"]["desired"],
    }
