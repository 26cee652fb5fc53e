"""Every sample that a request leaves in the gateway's metrics, with its labels and its value."""

import asyncio
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.core.routing.pick import Side
from penstock.gateway.metrics import Metrics

CHAT = "service=default/chat"
R1 = f"revision=r1,{CHAT}"
EVENT = b'data: {"n": 0}\n\n'
DONE = b"data: [DONE]\n\n"


def samples_of(text):
    """Counters and gauges that are not 0, and how often histograms were observed."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.value and not sample.name.endswith(("_bucket", "_sum", "_created")):
                labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
                name = sample.name.removeprefix("penstock_gateway_")
                found[f"{name} {labels}".strip()] = sample.value
    found.pop("loop_lag_seconds", None)
    return found


async def samples(front):
    await front.idle()
    async with front.client.get(front.url + "/metrics") as got:
        return samples_of(await got.text())


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer(start_engine, start_gateway, stream):
    front = await start_gateway(await start_engine())
    for _ in range(2):
        assert (await front.ask(stream=stream))[0] == 200
    assert await samples(front) == {
        f"requests_total {CHAT}": 2,
        f"responses_total code=200,{R1}": 2,
        f"time_to_first_byte_seconds_count {R1}": 2,
    }


async def test_a_request_that_is_wrong(start_engine, start_gateway):
    front = await start_gateway(await start_engine())
    assert (await front.ask(model="other"))[0] == 404
    assert (await front.ask(model=""))[0] == 400
    assert await samples(front) == {
        "responses_total code=404,revision=,service=": 1,
        "responses_total code=400,revision=,service=": 1,
    }


async def test_a_request_that_no_engine_takes(start_gateway, make_service):
    front = await start_gateway(wait_for_endpoint_s=0.01)
    front.show(make_service())
    assert (await front.ask())[0] == 503
    assert await samples(front) == {
        f"requests_total {CHAT}": 1,
        f"responses_total code=503,revision=,{CHAT}": 1,
    }


FAULTS = {
    "reset": lambda request: asyncio.sleep(0, request.reset()),
    "unavailable": lambda request: request.whole(b"{}", "503 Service Unavailable"),
    "error": lambda request: request.whole(b"{}", "500 Internal Server Error"),
}


@pytest.mark.parametrize("reason", FAULTS)
async def test_an_attempt_that_another_engine_makes_good(
    start_engine, start_gateway, make_service, reason
):
    """The answer is of the second one's revision."""
    bad, good = await start_engine(FAULTS[reason]), await start_engine(revision="r2")
    front = await start_gateway()
    both = make_service(bad, good, weights={"r1": 100, "r2": 0})
    front.show(both)

    async def fault_then_switch(request):
        front.show(replace(both, weights={Side("r1"): 0, Side("r2"): 100}))
        await FAULTS[reason](request)

    bad.behaviour = fault_then_switch
    assert (await front.ask())[0] == 200
    assert await samples(front) == {
        f"requests_total {CHAT}": 1,
        f"retries_total reason={reason},{CHAT}": 1,
        f"responses_total code=200,revision=r2,{CHAT}": 1,
        f"time_to_first_byte_seconds_count revision=r2,{CHAT}": 1,
    }


async def test_an_error_that_two_engines_give(start_engine, start_gateway):
    front = await start_gateway(*[await start_engine(FAULTS["error"]) for _ in range(2)])
    assert (await front.ask())[0] == 500
    assert await samples(front) == {
        f"requests_total {CHAT}": 1,
        f"retries_total reason=error,{CHAT}": 1,
        f"responses_total code=500,{R1}": 1,
    }


async def test_a_stream_that_is_cut(start_engine, start_gateway):
    async def cuts(request):
        await request.head()
        await request.chunk(EVENT)
        request.reset()

    front = await start_gateway(await start_engine(cuts))
    assert (await front.ask())[0] == 200
    assert await samples(front) == {
        f"requests_total {CHAT}": 1,
        f"responses_total code=200,{R1}": 1,
        f"streams_cut_total cause=upstream,{R1}": 1,
        f"time_to_first_byte_seconds_count {R1}": 1,
    }


async def silent(request):
    await request.head()
    await request.chunk(EVENT)
    await asyncio.Event().wait()


@pytest.mark.parametrize("cause", ["timeout", "shutdown"])
async def test_a_stream_that_is_ended_from_outside(start_engine, start_gateway, cause):
    engine = await start_engine(silent)
    limits = {"between_chunks_timeout_s": 0.1} if cause == "timeout" else {}
    front = await start_gateway(engine, **limits)
    async with front.post() as got:
        await got.content.readany()
        if cause == "shutdown":
            front.gateway.stop()
        assert (await got.read()).endswith(DONE)
    assert await samples(front) == {
        f"requests_total {CHAT}": 1,
        f"responses_total code=200,{R1}": 1,
        f"streams_cut_total cause={cause},{R1}": 1,
        f"time_to_first_byte_seconds_count {R1}": 1,
    }


async def test_a_first_byte_that_does_not_come(start_engine, start_gateway):
    async def hangs(request):
        await asyncio.Event().wait()

    front = await start_gateway(await start_engine(hangs), first_byte_timeout_s=0.1)
    assert (await front.ask())[0] == 504
    assert await samples(front) == {
        f"requests_total {CHAT}": 1,
        f"responses_total code=504,{R1}": 1,
    }


async def test_a_client_that_leaves(start_engine, start_gateway, until):
    engine = await start_engine(silent)
    front = await start_gateway(engine)
    async with front.post() as got:
        await got.content.readany()
        assert await samples_in_flight(front) == {f"requests_in_flight {R1}": 1}
        got.close()
    assert await samples(front) == {
        f"requests_total {CHAT}": 1,
        f"responses_total code=200,{R1}": 1,
        f"disconnects_total phase=streaming,{CHAT}": 1,
        f"time_to_first_byte_seconds_count {R1}": 1,
    }


async def samples_in_flight(front):
    async with front.client.get(front.url + "/metrics") as got:
        found = samples_of(await got.text())
    return {name: value for name, value in found.items() if name.startswith("requests_in_flight")}


async def test_a_request_that_waits(start_engine, start_gateway, make_service, until):
    front = await start_gateway()
    front.show(make_service())
    asking = asyncio.create_task(front.ask(padding="x" * 1000))
    await until(lambda: front.gateway.shared.waiting == 1)
    async with front.client.get(front.url + "/metrics") as got:
        found = samples_of(await got.text())
    assert found.pop("held_body_bytes") == front.gateway.shared.bodies.held_bytes > 1000
    assert found == {f"requests_total {CHAT}": 1, f"requests_waiting {CHAT}": 1}

    front.show(make_service(await start_engine()))

    assert (await asking)[0] == 200
    assert await samples(front) == {
        f"requests_total {CHAT}": 1,
        f"responses_total code=200,{R1}": 1,
        f"time_to_first_byte_seconds_count {R1}": 1,
        f"wait_seconds_count {CHAT}": 1,
    }


async def test_how_long_it_waited_and_took(start_engine, start_gateway, make_service, until):
    """Waiting time and time to first byte are measured by the gateway's clock."""
    now_s = 1000.0
    front = await start_gateway(now=lambda: now_s)
    front.show(make_service())
    asking = asyncio.create_task(front.ask())
    await until(lambda: front.gateway.shared.waiting == 1)
    now_s += 3.0

    async def slow(request):
        nonlocal now_s
        now_s += 4.0
        await request.whole(b"{}")

    front.show(make_service(await start_engine(slow)))
    assert (await asking)[0] == 200
    assert await front.metric("penstock_gateway_wait_seconds_sum") == 3.0
    assert await front.metric("penstock_gateway_time_to_first_byte_seconds_sum") == 7.0


def filled():
    """Each metric, for two services of two revisions."""
    metrics = Metrics()
    for service in ("n/a", "n/b", ""):
        metrics.requests.labels(service).inc()
        metrics.waiting.labels(service).inc()
        metrics.wait_s.labels(service).observe(1)
        metrics.retries.labels(service, "reset").inc()
        metrics.disconnects.labels(service, "waiting").inc()
        for revision in ("r1", "r2", ""):
            metrics.responses.labels(service, revision, "200").inc()
            metrics.in_flight.labels(service, revision).inc()
            metrics.first_byte_s.labels(service, revision).observe(1)
            metrics.cut.labels(service, revision, "timeout").inc()
            metrics.shadows.labels(service, revision, "ok").inc()
            metrics.shadow_first_byte_s.labels(service, revision).observe(1)
    return metrics


def label_sets(metrics):
    """Number of samples by service and revision; None: without a revision."""
    found = {}
    for name in samples_of(metrics.render().decode()):
        labels = dict(pair.split("=") for pair in name.partition(" ")[2].split(",") if pair)
        key = labels.get("service"), labels.get("revision")
        found[key] = found.get(key, 0) + 1
    return found


def test_only_the_series_of_what_is_there_are_kept():
    metrics = filled()
    nameless = {("", None): 5, ("", ""): 6, ("", "r1"): 6, ("", "r2"): 6}
    service_a = {("n/a", None): 5, ("n/a", ""): 6, ("n/a", "r1"): 6, ("n/a", "r2"): 6}
    service_b = {("n/b", None): 5, ("n/b", ""): 6, ("n/b", "r1"): 6, ("n/b", "r2"): 6}
    assert label_sets(metrics) == nameless | service_a | service_b
    metrics.keep_only({"n/a": {"r1", "r2"}, "n/b": {"r1", "r2"}})
    assert label_sets(metrics) == nameless | service_a | service_b
    metrics.keep_only({"n/a": {"r1", "r2"}, "n/b": {"r2"}})
    del service_b["n/b", "r1"]
    assert label_sets(metrics) == nameless | service_a | service_b
    metrics.keep_only({"n/b": {"r2"}})
    assert label_sets(metrics) == nameless | service_b
    metrics.keep_only({})
    assert label_sets(metrics) == nameless


@pytest.mark.parametrize("name", ["requests", "responses", "shadows", "in_flight", "waiting"])
def test_a_series_of_any_kind_is_dropped_with_its_service(name):
    metrics = Metrics()
    metric = getattr(metrics, name)
    labels = {"service": "n/a", "revision": "r1", "code": "200", "outcome": "ok"}
    metric.labels(*(labels[label] for label in metric._labelnames)).inc()
    assert label_sets(metrics)
    metrics.keep_only({"n/a": {"r1"}})
    assert label_sets(metrics)
    metrics.keep_only({})
    assert label_sets(metrics) == {}


async def test_series_are_kept_until_the_fleet_is_known(start_gateway):
    front = await start_gateway(synced=False)
    front.gateway.shared.metrics.requests.labels("default/chat").inc()
    assert await samples(front) == {f"requests_total {CHAT}": 1}
    front.show()
    assert await samples(front) == {}
