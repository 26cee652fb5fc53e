"""Metric gates of a canary with a real Prometheus: the state for each kind of result."""

import pytest

from penstock.clients.prometheus.metric_gates import Prometheus
from penstock.controller.canary.metric_queries import MetricQueries
from penstock.core.spec.metric_gate import MetricGate

NAMES = {"namespace": "default", "service": "chat", "revision": "b", "stable": "a"}
PODS = 'namespace="$namespace",pod=~"$service-$revision-.*"'
# A scrape may be lost on a busy machine.
WAITING = f"sum(last_over_time(vllm:num_requests_waiting{{{PODS}}}[30s]))"


def gate(server, query, **settings):
    return MetricGate(
        name="queue", server=server.url, query=query, interval_s=10.0, maximum=20.0, **settings
    )


async def measured(server, gate, times=1):
    queries, states = MetricQueries(Prometheus([server.host])), {}
    for _ in range(times):
        states = await queries.evaluate((gate,), states, NAMES, 10.0)
    return states["queue"]


async def test_metric_of_the_canarys_pods(prometheus, waiting):
    await prometheus.until(f"vllm:num_requests_waiting == {waiting}")
    found = await measured(prometheus, gate(prometheus, WAITING), times=2)
    assert (found.state, found.measurements, found.failed) == ("Passing", 2, 0)
    assert found.said == f"{waiting}"
    strict = gate(prometheus, f"10 * {WAITING}", failure_limit=1)
    found = await measured(prometheus, strict)
    assert (found.state, found.said) == ("Failing", f"{10 * waiting}, above its maximum 20")
    found = await measured(prometheus, strict, times=2)
    assert (found.state, found.failed) == ("Failed", 2)


@pytest.mark.parametrize(
    ("no_data", "state"), [("Hold", "NoData"), ("Pass", "Passing"), ("Fail", "Failed")]
)
async def test_no_data(prometheus, no_data, state):
    found = await measured(prometheus, gate(prometheus, "$service:absent", no_data=no_data))
    assert (found.state, found.is_open) == (state, state != "Passing")
    assert "no data" in found.said


async def test_query_errors_do_not_count(prometheus, start_prometheus):
    away = start_prometheus({})
    away.process.kill()
    away.process.wait()
    for server, query, told in [
        (prometheus, "sum(", "unclosed left parenthesis"),
        (away, WAITING, "cannot be queried: ConnectionError"),
    ]:
        found = await measured(server, gate(server, query, no_data="Fail"), times=3)
        assert (found.state, found.measurements, found.failed) == ("Unreadable", 0, 0)
        assert told in found.said
