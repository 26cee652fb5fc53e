"""Every sample that a request leaves in the gateway's metrics, with its labels and its value."""

import asyncio
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.gateway.engine_answers import DONE

from penstock.core.routing import apis
from penstock.core.routing.pick import Side
from penstock.gateway.telemetry.metrics import Metrics

CHAT = "service=default/chat"
R1 = f"revision=r1,{CHAT}"
# Samples that other tests check: those of the process, and the times and tokens of every request.
OTHERS = {
    "build_info", "connections", "endpoints", "loop_lag_seconds", "phase_seconds_count",
    "request_seconds_count", "snapshot_age_seconds", "snapshots_total",
    "time_per_output_token_seconds_count", "tokens_total", "open",
}  # fmt: skip
EVENT = b'data: {"n": 0}\n\n'


def samples_of(text):
    """Counters and gauges that are not 0, and the counts of histograms, by name and labels."""
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.value and not sample.name.endswith(("_bucket", "_sum", "_created")):
                labels = ",".join(
                    f"{k}={v}" for k, v in sorted(sample.labels.items()) if k != "route"
                )
                name = sample.name.removeprefix("penstock_gateway_")
                values[f"{name} {labels}".strip()] = sample.value
    return {name: value for name, value in values.items() if name.split()[0] not in OTHERS}


async def samples(front):
    await front.idle()
    async with front.client.get(front.management_url + "/metrics") as got:
        return samples_of(await got.text())


@pytest.mark.parametrize("stream", [True, False])
async def test_response(start_engine, start_gateway, stream):
    front = await start_gateway(await start_engine())
    for _ in range(2):
        assert (await front.ask(stream=stream))[0] == 200
    assert await samples(front) == {
        f"requests_total {CHAT}": 2,
        f"responses_total code=200,{R1}": 2,
        f"time_to_first_byte_seconds_count {R1}": 2,
    }


async def test_request_for_no_known_model(start_engine, start_gateway):
    front = await start_gateway(await start_engine())
    assert (await front.ask(model="other"))[0] == 404
    assert (await front.ask(model=""))[0] == 400
    assert await samples(front) == {
        "rejections_total reason=model_not_found,service=": 1,
        "rejections_total reason=invalid_request,service=": 1,
        "responses_total code=404,revision=,service=": 1,
        "responses_total code=400,revision=,service=": 1,
    }


async def test_request_without_an_engine(start_gateway, make_service):
    front = await start_gateway(wait_for_endpoint_s=0.01)
    front.publish(make_service())
    assert (await front.ask())[0] == 503
    assert await samples(front) == {
        f"rejections_total reason=no_endpoint,{CHAT}": 1,
        f"requests_total {CHAT}": 1,
        f"responses_total code=503,revision=,{CHAT}": 1,
    }


FAULTS = {
    "reset": lambda request: asyncio.sleep(0, request.reset()),
    "unavailable": lambda request: request.whole(b"{}", "503 Service Unavailable"),
    "error": lambda request: request.whole(b"{}", "500 Internal Server Error"),
}


@pytest.mark.parametrize("reason", FAULTS)
async def test_retry_on_another_revision(start_engine, start_gateway, make_service, reason):
    """The response counts for the second revision."""
    bad, good = await start_engine(FAULTS[reason]), await start_engine(revision="r2")
    front = await start_gateway()
    both = make_service(bad, good, weights={"r1": 100, "r2": 0})
    front.publish(both)

    async def fault_then_switch(request):
        front.publish(replace(both, weights={Side("r1"): 0, Side("r2"): 100}))
        await FAULTS[reason](request)

    bad.behavior = fault_then_switch
    assert (await front.ask())[0] == 200
    assert await samples(front) == {
        f"requests_total {CHAT}": 1,
        f"retries_total reason={reason},{CHAT}": 1,
        f"responses_total code=200,revision=r2,{CHAT}": 1,
        f"time_to_first_byte_seconds_count revision=r2,{CHAT}": 1,
    }


async def test_error_of_two_engines(start_engine, start_gateway):
    front = await start_gateway(*[await start_engine(FAULTS["error"]) for _ in range(2)])
    assert (await front.ask())[0] == 500
    assert await samples(front) == {
        f"requests_total {CHAT}": 1,
        f"retries_total reason=error,{CHAT}": 1,
        f"responses_total code=500,{R1}": 1,
    }


async def test_truncated_stream(start_engine, start_gateway):
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
async def test_cancelled_stream(start_engine, start_gateway, cause):
    engine = await start_engine(silent)
    limits = {"between_chunks_timeout_s": 0.1} if cause == "timeout" else {}
    front = await start_gateway(engine, **limits)
    async with front.post() as got:
        await got.content.readany()
        if cause == "shutdown":
            front.gateway.cancel_requests()
        assert (await got.read()).endswith(DONE)
    assert await samples(front) == {
        f"requests_total {CHAT}": 1,
        f"responses_total code=200,{R1}": 1,
        f"streams_cut_total cause={cause},{R1}": 1,
        f"time_to_first_byte_seconds_count {R1}": 1,
    }


async def test_first_byte_timeout(start_engine, start_gateway):
    async def hangs(request):
        await asyncio.Event().wait()

    front = await start_gateway(await start_engine(hangs), first_byte_timeout_s=0.1)
    assert (await front.ask())[0] == 504
    assert await samples(front) == {
        f"rejections_total reason=timeout,{CHAT}": 1,
        f"requests_total {CHAT}": 1,
        f"responses_total code=504,{R1}": 1,
    }


async def test_client_that_disconnects(start_engine, start_gateway, until):
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
    async with front.client.get(front.management_url + "/metrics") as got:
        values = samples_of(await got.text())
    return {name: value for name, value in values.items() if name.startswith("requests_in_flight")}


async def test_request_that_waits(start_engine, start_gateway, make_service, until):
    front = await start_gateway()
    front.publish(make_service())
    request = asyncio.create_task(front.ask(padding="x" * 1000))
    await until(lambda: front.gateway.state.waiting == 1)
    async with front.client.get(front.management_url + "/metrics") as got:
        values = samples_of(await got.text())
    assert values.pop("held_body_bytes") == front.gateway.state.limits.body_bytes.held > 1000
    assert values == {f"requests_total {CHAT}": 1, f"requests_waiting {CHAT}": 1}

    front.publish(make_service(await start_engine()))

    assert (await request)[0] == 200
    assert await samples(front) == {
        f"requests_total {CHAT}": 1,
        f"responses_total code=200,{R1}": 1,
        f"time_to_first_byte_seconds_count {R1}": 1,
        f"wait_seconds_count {CHAT}": 1,
    }


async def test_waiting_time_and_time_to_first_byte(
    start_engine, start_gateway, make_service, until
):
    """Both are measured by the gateway's clock."""
    now_s = 1000.0
    front = await start_gateway(now=lambda: now_s)
    front.publish(make_service())
    request = asyncio.create_task(front.ask())
    await until(lambda: front.gateway.state.waiting == 1)
    now_s += 3.0

    async def slow(request):
        nonlocal now_s
        now_s += 4.0
        await request.whole(b"{}")

    front.publish(make_service(await start_engine(slow)))
    assert (await request)[0] == 200
    assert await front.metric("penstock_gateway_wait_seconds_sum") == 3.0
    assert await front.metric("penstock_gateway_time_to_first_byte_seconds_sum") == 7.0


def filled():
    """Metrics with a sample of each kind, for two services of two revisions and for no service."""
    metrics = Metrics()
    for service in ("n/a", "n/b", ""):
        metrics.requests.labels(service).inc()
        metrics.waiting.labels(service).inc()
        metrics.wait_s.labels(service).observe(1)
        metrics.retries.labels(service, "reset").inc()
        metrics.disconnects.labels(service, "waiting").inc()
        for revision in ("r1", "r2", ""):
            metrics.responses.labels(service, revision, apis.CHAT.path, "200").inc()
            metrics.in_flight.labels(service, revision).inc()
            metrics.first_byte_s.labels(service, revision).observe(1)
            metrics.cut.labels(service, revision, "timeout").inc()
            metrics.mirrored_requests.labels(service, revision, "ok").inc()
            metrics.mirrored_first_byte_s.labels(service, revision).observe(1)
    return metrics


def label_sets(metrics):
    """Number of samples by service and revision; None: without a revision."""
    values = {}
    for name in samples_of(metrics.render()[0].decode()):
        labels = dict(pair.split("=") for pair in name.partition(" ")[2].split(",") if pair)
        key = labels.get("service"), labels.get("revision")
        values[key] = values.get(key, 0) + 1
    return values


def test_series_of_deleted_services_and_revisions_are_removed():
    metrics = filled()
    nameless = {("", None): 5, ("", ""): 6, ("", "r1"): 6, ("", "r2"): 6}
    service_a = {("n/a", None): 5, ("n/a", ""): 6, ("n/a", "r1"): 6, ("n/a", "r2"): 6}
    service_b = {("n/b", None): 5, ("n/b", ""): 6, ("n/b", "r1"): 6, ("n/b", "r2"): 6}
    assert label_sets(metrics) == nameless | service_a | service_b
    metrics.remove_stale_series({"n/a": {"r1", "r2"}, "n/b": {"r1", "r2"}})
    assert label_sets(metrics) == nameless | service_a | service_b
    metrics.remove_stale_series({"n/a": {"r1", "r2"}, "n/b": {"r2"}})
    del service_b["n/b", "r1"]
    assert label_sets(metrics) == nameless | service_a | service_b
    metrics.remove_stale_series({"n/b": {"r2"}})
    assert label_sets(metrics) == nameless | service_b
    metrics.remove_stale_series({})
    assert label_sets(metrics) == nameless


@pytest.mark.parametrize(
    "name", ["requests", "responses", "mirrored_requests", "in_flight", "waiting"]
)
def test_each_metric_alone_is_removed_with_its_service(name):
    metrics = Metrics()
    metric = getattr(metrics, name)
    labels = {
        "service": "n/a", "revision": "r1", "route": apis.CHAT.path, "code": "200", "outcome": "ok",
    }  # fmt: skip
    metric.labels(*(labels[label] for label in metric._labelnames)).inc()
    assert label_sets(metrics)
    metrics.remove_stale_series({"n/a": {"r1"}})
    assert label_sets(metrics)
    metrics.remove_stale_series({})
    assert label_sets(metrics) == {}


async def test_series_are_kept_until_the_first_snapshot(start_gateway):
    front = await start_gateway(synced=False)
    front.gateway.state.metrics.requests.labels("default/chat").inc()
    assert await samples(front) == {f"requests_total {CHAT}": 1}
    front.publish()
    assert await samples(front) == {}
