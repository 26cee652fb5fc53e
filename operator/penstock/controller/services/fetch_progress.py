"""Reads how far the fetches of models in a service's pods are."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from penstock.core.formats.addresses import host_port
from penstock.core.observed.children import ObservedState
from penstock.core.observed.fetches import FetchProgress
from penstock.core.observed.pods import ObservedPod
from penstock.core.spec.service import ENGINE_PORT

# Reads the progress of a fetch by namespace, name and address of the pod; None if it does not answer.
ReadProgress = Callable[[str, str, str], Awaitable[FetchProgress | None]]

# Pods of a service that are asked each time. All pods of a scale-up fetch the same model.
MAX_PODS = 4
# Time until they are asked again, in seconds: each answer is a write of the status.
INTERVAL_S = 10.0


async def unknown_progress(namespace: str, pod: str, address: str) -> None:
    """The progress of a fetch where nobody is asked for it."""


async def with_fetch_progress(
    read: ReadProgress, namespace: str, observed: ObservedState
) -> tuple[ObservedState, float | None]:
    """The state with the progress of fetches that run.

    Returns also after how many seconds to read it again, as nothing else may change; None without fetches.
    """
    running = [pod for pod in observed.pods if _fetches(pod)]
    if not running:
        return observed, None
    asked = sorted(running, key=lambda pod: pod.name)[:MAX_PODS]
    answers = await asyncio.gather(
        *(read(namespace, pod.name, host_port(pod.address, ENGINE_PORT)) for pod in asked)
    )
    found = {pod.uid: answer for pod, answer in zip(asked, answers, strict=True)}
    pods = tuple(_with_progress(pod, found.get(pod.uid)) for pod in observed.pods)
    return replace(observed, pods=pods), INTERVAL_S


def _fetches(pod: ObservedPod) -> bool:
    return bool(pod.fetches and pod.fetches.running and pod.address and not pod.is_ending)


def _with_progress(pod: ObservedPod, progress: FetchProgress | None) -> ObservedPod:
    if pod.fetches is None or progress is None:
        return pod
    return replace(pod, fetches=replace(pod.fetches, progress=progress))
