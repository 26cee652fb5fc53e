"""Metrics of outcomes, phases, endpoints and rejections, and a bound on the number of series."""

import ast
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.gateway.engine_answers import DONE

from penstock.core.admission.decision import MESSAGES
from penstock.core.routing import outliers
from penstock.core.spec.objectives import Objectives
from penstock.gateway.apis import errors
from penstock.gateway.proxy.cancelled_request import CANCELLED_RESPONSES
from penstock.gateway.request_lifecycle.timeline import Interval, RequestPhase
from penstock.gateway.selection import adapter_selection
from penstock.gateway.stats.request_ending import RequestOutcome
from penstock.gateway.telemetry.metrics import Metrics
from penstock.observability.metrics import gateway as specs

PHASES = [Interval(phase, at, at + 1.0) for at, phase in enumerate(RequestPhase)]


async def fails(request):
    await request.whole(b"{}", "503 Service Unavailable")


async def token_stream(request):
    await request.head()
    for _ in range(3):
        await request.chunk(b'data: {"choices": [{"text": " a"}]}\n\n')
    await request.chunk(
        b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}\n\n'
    )
    await request.chunk(DONE)
    await request.end()


@pytest.mark.parametrize(("ttft_s", "num_misses"), [(60.0, 0), (0.000001, 1)])
async def test_a_stream_counts_for_both_objectives(
    start_engine, start_gateway, make_service, ttft_s, num_misses
):
    front = await start_gateway(synced=False)
    objectives = Objectives(ttft_s=ttft_s, tpot_s=60.0)
    front.publish(make_service(await start_engine(token_stream), objectives=objectives))
    assert (await front.ask())[0] == 200
    await front.idle()
    requests, misses = specs.OBJECTIVE_REQUESTS.name, specs.OBJECTIVE_MISSES.name
    assert await front.metric(requests, objective="ttft", revision="r1") == 1
    assert await front.metric(requests, objective="tpot", revision="r1") == 1
    assert await front.metric(misses, objective="ttft", revision="r1") == num_misses
    assert await front.metric(misses, objective="tpot", revision="r1") == 0
    assert await front.metric(specs.TOKENS_TOTAL.name, kind="prompt") == 7
    assert await front.metric(specs.TOKENS_TOTAL.name, kind="output") == 3


async def test_a_request_that_is_shed_misses_the_objectives_that_are_set(
    start_gateway, make_service
):
    front = await start_gateway(synced=False, wait_for_endpoint_s=0.01)
    front.publish(make_service(objectives=Objectives(ttft_s=1.0)))
    assert (await front.ask())[0] == 503
    await front.idle()
    misses = specs.OBJECTIVE_MISSES.name
    assert await front.metric(misses, objective="ttft", revision="") == 1
    assert await front.metric(misses, objective="tpot") == 0


async def test_phases_of_a_request(start_engine, start_gateway):
    front = await start_gateway(await start_engine())
    assert (await front.ask())[0] == 200
    await front.idle()
    for phase in RequestPhase:
        name = f"{specs.PHASE_S.name}_count"
        assert await front.metric(name, phase=phase.value, service="default/chat") == 1
    assert await front.metric(f"{specs.REQUEST_S.name}_count") == 1


async def test_endpoints_by_state_and_ejections(start_engine, start_gateway, caplog, monkeypatch):
    monkeypatch.setattr(outliers, "FIRST_EJECTION_S", outliers.LAST_EJECTION_S)
    front = await start_gateway(await start_engine(fails), await start_engine())
    for _ in range(20):
        await front.ask()
    await front.idle()
    endpoints = specs.ENDPOINTS.name
    assert await front.metric(endpoints, state="available", service="default/chat") == 1
    assert await front.metric(endpoints, state="ejected", service="default/chat") == 1
    assert await front.metric(endpoints, state="unready", service="default/chat") == 0
    assert await front.metric(specs.EJECTIONS.name, service="default/chat") == 1
    (line,) = [each for each in caplog.records if "failed several in a row" in each.message]
    assert line.fields == {"service": "default/chat"}


async def test_draining_and_connections(start_gateway):
    front = await start_gateway()
    assert await front.metric(specs.CONNECTIONS.name) == 0  # the scrape's own is not a client's
    async with front.client.get(front.url + "/v1/models") as got:
        await got.read()
    assert await front.metric(specs.CONNECTIONS.name) == 1
    assert await front.metric(specs.DRAINING.name) == 0
    front.gateway.drain()
    assert await front.metric(specs.DRAINING.name) == 1


def test_every_reason_of_a_rejection_is_in_the_list():
    """Reasons are codes, given reasons, or come from the status or from admission."""
    found = {*errors.REASONS.values(), "invalid_request", adapter_selection.CODE, *MESSAGES}
    found |= {cause.value for cause in CANCELLED_RESPONSES}
    for path in Path(errors.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if name in ("RequestError", "BackendMissing"):
                found |= {
                    each.value.value
                    for each in node.keywords
                    if each.arg in ("code", "reason") and isinstance(each.value, ast.Constant)
                }
    assert found == set(specs.REJECTION.values)


def test_phases_of_the_list_are_those_of_requests():
    assert specs.PHASE.values == tuple(phase.value for phase in RequestPhase)


def observe_all(metrics, service, revision, route="default/route"):
    metrics.requests.labels(service).inc()
    metrics.routes.requests.labels(route, service).inc()
    metrics.responses.labels(service, revision, "/v1/completions", "200").inc()
    metrics.rejections.labels(service, "timeout").inc()
    metrics.endpoints.labels(service, "available").set(1)
    metrics.wait_s.labels(service).observe(1)
    metrics.first_byte_s.labels(service, revision).observe(1)
    metrics.observe_times(service, PHASES)
    metrics.observe_outcome(service, revision, RequestOutcome(True, False, 5, 7, 0.1))


def num_series(metrics):
    families = text_string_to_metric_families(metrics.render()[0].decode())
    return sum(len(family.samples) for family in families)


@pytest.mark.parametrize("changing", ["service", "revision", "route"])
def test_series_do_not_grow_with_services_revisions_and_routes_that_are_gone(changing):
    """The gateway drops them at each scrape, here one in a hundred requests."""
    metrics = Metrics()
    observe_all(metrics, "default/chat", "r1")
    num_samples = num_series(metrics)
    for number in range(1000):
        service = f"default/chat-{number}" if changing == "service" else "default/chat"
        revision = f"r{number}" if changing == "revision" else "r1"
        route = f"default/{number}" if changing == "route" else "default/route"
        observe_all(metrics, service, revision, route)
        if number % 100 == 99:
            metrics.remove_stale_series({service: {revision}}, {route})
            assert num_series(metrics) == num_samples
