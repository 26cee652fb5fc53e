"""The operator dies at a write and the end is the same: a few of `benchmarks/operator_crashes.py`."""

import asyncio
import random
import secrets
from pathlib import Path

import pytest

from penstock.adapters.kube import NAMESPACES, Kube
from penstock.demo.crashes import MOMENTS, Moment, survive
from penstock.demo.model import ensure_model
from penstock.local.cluster import Cluster

ROOT = Path(__file__).parents[2]
SEED = 3
# The writes before the service is Ready; later ones would never come in so short a life.
EARLY = MOMENTS[:8]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


async def test_the_end_state_does_not_depend_on_when_it_died(cluster: Cluster, kube: Kube) -> None:
    models = ensure_model(ROOT / "docs", seconds=60)
    spec = {
        "model": {"uri": f"file://{models}/penstock-tiny"},
        "engine": {"maxModelLen": 256, "kvCache": {"memory": "8Mi"}},
        "resources": {"memory": "1Gi"},
    }

    async def end_after(moment: Moment) -> dict[str, object]:
        namespace = f"crash-{secrets.token_hex(4)}"
        await kube.create(NAMESPACES, None, {"metadata": {"name": namespace}})
        await asyncio.sleep(1)  # until the namespace has its ServiceAccount
        try:
            return await survive(cluster, kube, namespace, moment, spec)
        finally:
            await kube.delete(NAMESPACES, None, namespace)

    chosen = random.Random(SEED).sample(EARLY, 2)
    reference = await end_after(Moment(0, after=False))
    for moment in chosen:
        assert await end_after(moment) == reference, str(moment)
    print(f"seed {SEED}: killed {', '.join(map(str, chosen))}: the same end state")
