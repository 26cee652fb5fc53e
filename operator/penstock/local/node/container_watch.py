"""Runs postStart and the probes of running containers."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from penstock.clients.machine.clock import monotonic
from penstock.local.node.container import Container
from penstock.local.node.probe import ProbeSpec, ProbeState
from penstock.local.node.report import PodReport


class ContainerWatch:
    """Watches the containers of one pod, and writes what it sees into the pod's report.

    grace_s: the pod's grace period. end: stops a container that failed its probe, by a deadline.
    """

    def __init__(
        self, report: PodReport, grace_s: float, end: Callable[[Container, float], Awaitable[None]]
    ) -> None:
        self._report = report
        self._grace_s = grace_s
        self._end = end

    async def run(self, container: Container) -> None:
        """Run postStart and the probes of a running container until cancelled."""
        spec = container.spec
        hook = spec.get("lifecycle", {}).get("postStart")
        if hook and (failure := await container.act(hook, 600)):
            await self._report.warn("FailedPostStartHook", failure)
            container.kill()
            return
        startup = ProbeSpec.of(spec.get("startupProbe"))
        if startup:
            await self._probe(container, "Startup", startup, until_passing=True)
        self._report.update(container.name, lambda r: replace(r, is_started=True))
        loops: list[Coroutine[Any, Any, None]] = []
        readiness = ProbeSpec.of(spec.get("readinessProbe"))
        if readiness:
            loops.append(self._probe(container, "Readiness", readiness))
        else:
            self._report.set_ready(container.name, True)
        if liveness := ProbeSpec.of(spec.get("livenessProbe")):
            loops.append(self._probe(container, "Liveness", liveness))
        await self._report.send()
        await asyncio.gather(*loops)

    async def _probe(
        self, container: Container, kind: str, spec: ProbeSpec, *, until_passing: bool = False
    ) -> None:
        state = ProbeState()
        await asyncio.sleep(spec.initial_delay_s)
        while True:
            failure = await container.probe(spec)
            state = state.observe(spec, failure is None)
            if failure:
                await self._report.warn("Unhealthy", f"{kind} probe failed: {failure}")
            if kind == "Readiness":
                if state.verdict != "unknown":
                    self._report.set_ready(container.name, state.verdict == "passing")
                await self._report.send()
            elif state.verdict == "failing":
                message = (
                    f"Container {container.name} failed {kind.lower()} probe, will be restarted"
                )
                await self._report.event("Normal", "Killing", message)
                grace_s = self._grace_s if spec.grace_s is None else spec.grace_s
                await self._end(container, monotonic() + grace_s)
                return
            elif until_passing and state.verdict == "passing":
                return
            await asyncio.sleep(spec.period_s)
