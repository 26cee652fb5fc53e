"""A gateway in front of engines with adapters."""

from dataclasses import replace

import pytest
from tests.gateway.adapters.adapter_engine import SQL
from tests.support.gateway_snapshots import build

from penstock.core.observed.lora_engine import LoraEngine
from penstock.gateway.adapters import polls as adapter_polls
from penstock.gateway.snapshots.snapshot import Snapshot


@pytest.fixture(autouse=True)
def short_polls(monkeypatch):
    monkeypatch.setattr(adapter_polls, "POLL_INTERVAL_S", 0.05)


@pytest.fixture
async def pool(start_engine, start_gateway, make_service, until):
    """`await pool(behavior, …, adapters=…)` -> a gateway in front of a service with these engines."""

    async def make(*behaviors, adapters=(SQL,), revisions=None, slots=4, more=None, **settings):
        revisions = revisions or ["r1"] * len(behaviors)
        engines = [
            await start_engine(behavior, revision)
            for behavior, revision in zip(behaviors, revisions, strict=True)
        ]
        weights = dict.fromkeys(revisions, 50)
        front = await start_gateway(**settings)
        takers = {e.endpoint().pod: LoraEngine("Penstock", slots) for e in engines if slots}
        service = replace(make_service(*engines, weights=weights), lora_engines=takers)
        service = replace(service, **(more or {}))
        built = build([], [], [], adapters).adapters
        front.snapshots.publish(Snapshot((service,), (), built))
        residency = front.gateway.state.adapters.residency
        if takers and adapters:
            await until(
                lambda: all(residency.copies(e.endpoint().pod) is not None for e in engines)
            )
        return front

    return make
