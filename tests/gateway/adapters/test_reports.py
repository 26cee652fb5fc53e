"""Adapters in the stats report, the metrics and the log."""

import asyncio
import json
from collections import Counter

from tests.gateway.adapters.adapter_engine import NAME, AdapterEngine, adapter, ask

from penstock.clients.pods import stats_report
from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import AdapterCounts
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Snapshot
from penstock.gateway.telemetry import access_log
from penstock.gateway.telemetry.metrics import Metrics
from penstock.observability.metrics import gateway as metric_specs


async def report_of(front):
    async with front.client.get(front.management_url + stats_report.PATH) as got:
        text = await got.text()
    return json.loads(text), stats_report.parse("g", text)


async def test_the_stats_report_counts_each_version(pool, until):
    engine = AdapterEngine()
    engine.gate.clear()
    front = await pool(engine)
    encoded, _ = await report_of(front)
    assert "adapters" not in encoded  # an operator that does not know adapters reads the report
    waiting = asyncio.create_task(ask(front))
    await until(lambda: engine.calls)
    encoded, report = await report_of(front)
    assert encoded["adapters"] == {
        "default/chat": {NAME: {"arrivals": 1, "misses": 1, "waiting": 1}}
    }
    assert report.adapters == {"default/chat": {NAME: AdapterCounts(1, misses=1, waiting=1)}}
    engine.gate.set()
    await waiting
    await front.idle()
    _, report = await report_of(front)
    counts = report.adapters["default/chat"][NAME]
    assert (counts.arrivals, counts.loads, counts.waiting, counts.in_flight) == (1, 1, 0, 0)
    assert report.services["default/chat"].arrivals == 1
    (service,) = front.snapshots.current.services
    front.snapshots.publish(Snapshot((service,)))
    _, report = await report_of(front)
    assert report.adapters == {}


async def test_metrics_of_an_adapter(pool, until):
    engine = AdapterEngine()
    engine.gate.clear()
    front = await pool(engine)
    labels = {"service": "default/chat", "adapter": "sql"}
    waiting = asyncio.create_task(ask(front))
    await until(lambda: engine.calls)
    assert await front.metric("penstock_gateway_adapter_requests_waiting", **labels) == 1
    engine.gate.set()
    await waiting
    await ask(front)
    await ask(front, "chat")
    name = "penstock_gateway_adapter"
    assert await front.metric(f"{name}_requests_total", **labels) == 2
    assert await front.metric(f"{name}_misses_total", **labels) == 1
    assert await front.metric(f"{name}_loads_total", **labels) == 1
    assert await front.metric(f"{name}_load_failures_total", **labels) == 0
    assert await front.metric(f"{name}_requests_waiting", **labels) == 0
    assert await front.metric(f"{name}_load_seconds_count", service="default/chat") == 1
    (service,) = front.snapshots.current.services
    front.snapshots.publish(Snapshot((service,)))
    async with front.client.get(front.management_url + "/metrics") as got:
        assert 'adapter="' not in await got.text()


async def test_series_of_adapters_are_bounded(pool, monkeypatch):
    monkeypatch.setattr(metric_specs, "MAX_ADAPTERS", 6)  # of which a service has 2
    bodies = [adapter(f"a{n}", day=n) for n in range(1, 6)]
    front = await pool(AdapterEngine(slots=9), adapters=bodies, slots=9)
    for n in range(1, 6):
        assert (await ask(front, f"a{n}"))[0] == 200
    name = "penstock_gateway_adapter_requests_total"
    counts = [await front.metric(name, adapter=each) for each in ("a1", "a2", "a3", "other")]
    assert counts == [1, 1, 0, 3]
    front.snapshots.publish(
        Snapshot(front.snapshots.current.services, (), front.snapshots.current.adapters[1:])
    )
    await front.metric(name)  # the scrape drops the series of the deleted one
    await ask(front, "a5")
    assert await front.metric(name, adapter="a5") == 1


def test_adapters_of_one_namespace_leave_series_to_those_of_others():
    metrics = Metrics()
    version = AdapterVersion("a", "pvc://adapters/a")
    for service in ("party/x", "party/y", "party/z", "others/chat"):
        namespace = service.partition("/")[0]
        for n in range(300):
            metrics.adapters.count_request(
                Adapter(namespace, f"a{n}", f"a{n}", 0, service, version)
            )
    (family,) = metrics.metric_set.counter(metric_specs.ADAPTER_REQUESTS).collect()
    named = Counter(
        sample.labels["service"]
        for sample in family.samples
        if sample.name.endswith("_total") and sample.labels["adapter"] != "other"
    )
    assert named == {"party/x": 224, "party/y": 28, "party/z": 3, "others/chat": 112}


async def test_the_access_log_names_the_version(pool, caplog):
    caplog.set_level("INFO", access_log.__name__)
    front = await pool(AdapterEngine(NAME))
    await ask(front)
    await ask(front, "chat")
    await front.idle()
    lines = [record.fields for record in caplog.records if record.name == access_log.__name__]
    assert [line.get("adapter") for line in lines] == [NAME, None]
