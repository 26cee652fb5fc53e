"""Builders of what a planner observes of a service of the revision OLD: Deployments and pods."""

from dataclasses import replace
from typing import Any

from penstock.core.observed.children import ObservedDeployment, ObservedState
from penstock.core.observed.pods import ObservedPod

OLD = "a" * 8


def pod(name: str = "p", *, ready: bool = True, trouble: Any = None, **rest: Any) -> ObservedPod:
    made = ObservedPod(name, name, OLD, "serve", "", ready, False, "Running", trouble, "")
    return replace(made, **rest)


def preflight(phase: str = "Running", said: str = "", **rest: Any) -> ObservedPod:
    made = replace(pod(ready=False), role="preflight", phase=phase, service="chat")
    return replace(made, termination_message=said, **rest)


def deployment(replicas: int = 1, trouble: Any = None, variant: str = "") -> ObservedDeployment:
    name = f"d-{variant}"
    return ObservedDeployment(
        name, name, OLD, replicas, 0, False, {}, trouble=trouble, variant=variant
    )


def observed_with(*children: ObservedDeployment | ObservedPod, **rest: Any) -> ObservedState:
    return ObservedState(
        deployments=tuple(c for c in children if isinstance(c, ObservedDeployment)),
        pods=tuple(c for c in children if isinstance(c, ObservedPod)),
        **rest,
    )
