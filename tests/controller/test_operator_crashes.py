"""The operator dies at writes and the end is the same: a part of `benchmarks/operator_crashes.py`."""

import random
from pathlib import Path

import pytest

from penstock.adapters.kube import Kube
from penstock.demo.crashes import moments, survive
from penstock.demo.model import ensure_model
from penstock.local.cluster import Cluster

ROOT = Path(__file__).parents[2]
SEED = 2
# It has the most phases.
STRATEGY = "Canary"

pytestmark = pytest.mark.cluster


async def test_the_end_state_does_not_depend_on_when_it_died(cluster: Cluster, kube: Kube) -> None:
    model_uri = f"file://{ensure_model(ROOT / 'docs', seconds=60)}/penstock-tiny"
    chosen = random.Random(SEED).sample(moments(STRATEGY), 4)
    undisturbed = await survive(cluster, kube, (), model_uri, STRATEGY)
    disturbed = await survive(cluster, kube, chosen, model_uri, STRATEGY)
    assert not disturbed.missed
    assert disturbed.end == undisturbed.end
    print(f"seed {SEED}: killed {', '.join(map(str, chosen))}: the same end state")
