"""Kills the operator at chosen writes: the end state is the same. A sample of the crash campaign."""

import random
from pathlib import Path

import pytest
from tests.support.cluster.crashes import moments, survive

from penstock.clients.kubernetes.client import Kube
from penstock.demo.model import ensure_model
from penstock.local.cluster import Cluster

ROOT = Path(__file__).parents[2]
SEED = 2
STRATEGY = "Canary"  # it has the most phases

CONDITIONS = {
    "SpecValid": ("True", "Valid"),
    "ModelReady": ("True", "Fits"),
    "WorkloadReady": ("True", "EnginesReady"),
    "TrafficAvailable": ("True", "Serving"),
    "RolledOut": ("True", "Stable"),
    "ScalingActive": ("True", "Active"),
    "Reconciling": ("False", "Settled"),
    "Stalled": ("False", "NotStalled"),
    "Ready": ("True", "Ready"),
    "AccessControlled": ("False", "NoTenants"),
}

pytestmark = pytest.mark.cluster


async def test_the_end_state_does_not_depend_on_when_the_operator_died(
    cluster: Cluster, kube: Kube
) -> None:
    model_uri = f"file://{ensure_model(ROOT / 'docs')}/penstock-tiny"
    chosen = random.Random(SEED).sample(moments(STRATEGY), 4)
    life = await survive(cluster, kube, chosen, model_uri, STRATEGY)
    print(f"seed {SEED}: killed {', '.join(map(str, chosen))}: {life.end}")
    assert not life.missed
    (route,) = life.end["traffic"]
    name = f"chat-{route['revision']}"
    preflight = f"pods/{name}-preflight"
    assert life.end == {
        "children": [f"deployments/{name}", f"pods/{name}", f"pods/{name}", preflight],
        "conditions": CONDITIONS,
        "traffic": [route | {"percent": 100, "cohort": "Primary"}],
        "phase": "Stable",
        "rolled out": None,
        "rejected": (None, None),
        "history": [1, 2],
        "replicas": (2, 2),
        "desired": 2,
    }
