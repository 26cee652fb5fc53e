"""Runs a scenario once with one policy and one seed."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from penstock.sim.clock import Clock
from penstock.sim.quota import Quota
from penstock.sim.scenario import Scenario
from penstock.sim.service import Service, schedule_fault
from penstock.sim.sharing import Sharing

# New objects between two garbage collections of a run; Python's own default is 700.
GC_OBJECTS = 100_000


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run. services: their final state, with all requests, pods and decisions."""

    scenario: Scenario
    seed: int
    services: tuple[Service, ...]


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely: nearly all objects of a run live until its end, and few are in cycles."""
    thresholds = gc.get_threshold()
    gc.set_threshold(GC_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def run(scenario: Scenario, policy: str, seed: int, knobs: Mapping[str, str] | None = None) -> Run:
    """Simulate a scenario. Raises ValueError for an unknown policy or knob."""
    clock = Clock()
    quota = Quota(dict(scenario.quotas))
    services = tuple(
        Service(spec, scenario, clock, quota, seed, policy, knobs or {})
        for spec in scenario.services
    )
    if scenario.sharing == "Priority":
        sharing = Sharing(quota, services)
        for service in services:
            if service.spec.engine.gpu in quota.limits and service.rollout is None:
                service.scaler.ask = partial(sharing.ask, service)
    for fault in scenario.faults:
        schedule_fault(fault, services, clock)
    for service in services:
        service.begin()
    with rare_collections():
        clock.run(scenario.duration_s + scenario.tail_s)
    return Run(scenario, seed, services)
