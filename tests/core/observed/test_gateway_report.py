"""Aggregation of gateway counters across restarts is monotonic."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.adapters.demand import AdapterCounts
from penstock.core.canary.arm import NO_REQUESTS
from penstock.core.observed.gateway_report import VERSION, GatewayReport, GatewayTotals
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.signals import GatewayReading

BOUNDS = (0.1, 1.0)
ZERO = GatewayReading(
    at_s=0.0, queued=0, queued_prompt_tokens=0, in_flight=0, in_flight_prefill_tokens=0,
    oldest_wait_s=0.0, arrivals=0, prompt_tokens=0, ended=0, output_tokens=0, attended_tokens=0,
    shed=0, failed=0, late=0, ttft_s=Histogram(BOUNDS, (0, 0, 0), 0.0),
    tpot_s=Histogram(BOUNDS, (0, 0, 0), 0.0),
)  # fmt: skip


def reading(arrivals: int, queued: int = 0, wait_s: float = 0.0) -> GatewayReading:
    return replace(
        ZERO,
        arrivals=arrivals,
        prompt_tokens=10 * arrivals,
        queued=queued,
        oldest_wait_s=wait_s,
        ttft_s=Histogram(BOUNDS, (arrivals, 0, 0), 0.05 * arrivals),
    )


def feed(arrivals: int, started_s: float = 1.0, **more: float) -> GatewayReport:
    return GatewayReport(VERSION, started_s, {"n/s": reading(arrivals, **more)})  # type: ignore[arg-type]


def sums_after(*looks: dict[str, GatewayReport]) -> GatewayReading:
    gateways = GatewayTotals()
    for feeds in looks:
        gateways = gateways.updated(feeds, feeds.keys(), 50.0)
    return gateways.sums["n/s"]


@pytest.mark.parametrize(
    ("looks", "arrivals"),
    [
        ([{"a": feed(5)}], 5),
        ([{"a": feed(5)}, {"a": feed(8)}], 8),
        ([{"a": feed(5), "b": feed(7)}, {"a": feed(6), "b": feed(9)}], 15),
        # A gateway is removed: its counts stay.
        ([{"a": feed(5), "b": feed(70)}, {"a": feed(6)}], 76),
        # A gateway is added: only its own counts are added.
        ([{"a": feed(5)}, {"a": feed(5), "b": feed(3)}], 8),
        # A gateway restarts: its counts or its start time show it.
        ([{"a": feed(50)}, {"a": feed(2)}], 52),
        ([{"a": feed(50)}, {"a": feed(60, started_s=2.0)}], 110),
    ],
)
def test_arrivals_of_all_gateways(looks: list[dict[str, GatewayReport]], arrivals: int) -> None:
    total = sums_after(*looks)
    assert (total.arrivals, total.prompt_tokens) == (arrivals, 10 * arrivals)
    assert total.ttft_s.count == arrivals
    assert total.ttft_s.total == pytest.approx(0.05 * arrivals)


def test_gauges_are_of_now() -> None:
    total = sums_after(
        {"a": feed(5, queued=9), "b": feed(5)},
        {"a": feed(5, queued=2, wait_s=3.0), "b": feed(5, queued=1, wait_s=4.0)},
    )
    assert (total.queued, total.oldest_wait_s, total.at_s) == (3, 4.0, 50.0)


def test_one_that_could_not_be_read_for_a_while_is_not_counted_twice() -> None:
    gateways = GatewayTotals().updated({"a": feed(50), "b": feed(1)}, ["a", "b"], 1.0)
    gateways = gateways.updated({"b": feed(1)}, ["a", "b"], 2.0)
    gateways = gateways.updated({"a": feed(53), "b": feed(1)}, ["a", "b"], 3.0)
    assert gateways.sums["n/s"].arrivals == 54


def test_other_buckets_are_not_added() -> None:
    other = replace(reading(1), ttft_s=Histogram((5.0,), (1, 0), 1.0))
    with pytest.raises(ValueError, match="different histogram buckets"):
        sums_after({"a": feed(1), "b": GatewayReport(VERSION, 1.0, {"n/s": other})})


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 20), min_size=1), min_size=1)
)
def test_the_sum_never_falls_and_is_all_that_ever_came(rounds: list[dict[str, int]]) -> None:
    """rounds: the additional requests of each gateway in a round. An absent gateway has terminated."""
    counts: dict[str, int] = {}
    gateways, came, before = GatewayTotals(), 0, 0
    for number, more in enumerate(rounds):
        counts = {name: counts.get(name, 0) + gained for name, gained in more.items()}
        came += sum(more.values())
        feeds = {name: feed(count) for name, count in counts.items()}
        gateways = gateways.updated(feeds, feeds.keys(), float(number))
        total = gateways.sums["n/s"].arrivals
        assert before <= total == came
        before = total


def report_with(started_s: float = 1.0, **requests: int) -> GatewayReport:
    arms = {"n/s": {pod: replace(NO_REQUESTS, requests=count) for pod, count in requests.items()}}
    return GatewayReport(VERSION, started_s, {"n/s": ZERO}, arms)


@pytest.mark.parametrize(
    ("looks", "requests"),
    [
        ([{"g": report_with(a=5, b=1)}, {"g": report_with(a=8, b=1)}], {"a": 8, "b": 1}),
        (
            [
                {"g": report_with(a=5), "h": report_with(a=7)},
                {"g": report_with(a=6), "h": report_with(a=9)},
            ],
            {"a": 15},
        ),
        # A gateway goes: what it counted stays, as long as another one tells of the engine.
        ([{"g": report_with(a=5), "h": report_with(a=7)}, {"g": report_with(a=6)}], {"a": 13}),
        # An engine goes, and one comes.
        ([{"g": report_with(a=5, b=1)}, {"g": report_with(b=2, c=3)}], {"b": 2, "c": 3}),
        # A gateway begins anew, as its start or a count tells.
        ([{"g": report_with(a=5)}, {"g": report_with(started_s=2.0, a=6)}], {"a": 11}),
        ([{"g": report_with(a=5)}, {"g": report_with(a=2)}], {"a": 7}),
    ],
)
def test_requests_of_each_engine(
    looks: list[dict[str, GatewayReport]], requests: dict[str, int]
) -> None:
    gateways = GatewayTotals()
    for feeds in looks:
        gateways = gateways.updated(feeds, feeds.keys(), 50.0)
    assert {pod: arm.requests for pod, arm in gateways.arms["n/s"].items()} == requests


def test_a_gateway_that_could_not_be_read_still_tells_of_its_engines() -> None:
    gateways = GatewayTotals().updated(
        {"g": report_with(a=5), "h": report_with(b=2)}, ["g", "h"], 1.0
    )
    gateways = gateways.updated({"h": report_with(b=3)}, ["g", "h"], 2.0)
    gateways = gateways.updated({"g": report_with(a=9), "h": report_with(b=4)}, ["g", "h"], 3.0)
    assert {pod: arm.requests for pod, arm in gateways.arms["n/s"].items()} == {"a": 9, "b": 4}


def adapter_feed(started_s: float = 1.0, **adapters: AdapterCounts) -> GatewayReport:
    return GatewayReport(VERSION, started_s, {}, adapters={"n/s": adapters})


def test_counts_of_adapters_are_added_up_and_gauges_are_those_of_now() -> None:
    totals = GatewayTotals()
    assert totals.adapters is None
    first = AdapterCounts(arrivals=5, load_s=0.5, in_flight=2)
    totals = totals.updated({"a": adapter_feed(sql=first)}, ["a"], 1.0)
    assert totals.adapters == {"n/s": {"sql": first}}
    reports = {
        "a": adapter_feed(sql=AdapterCounts(arrivals=7, load_s=0.5, in_flight=1)),
        "b": adapter_feed(sql=AdapterCounts(arrivals=1, waiting=3), code=AdapterCounts(misses=1)),
    }
    totals = totals.updated(reports, ["a", "b"], 2.0)
    assert totals.adapters == {
        "n/s": {
            "sql": AdapterCounts(arrivals=8, load_s=0.5, in_flight=1, waiting=3),
            "code": AdapterCounts(misses=1),
        }
    }
    restarted = adapter_feed(9.0, sql=AdapterCounts(arrivals=2))
    totals = totals.updated({"a": restarted}, ["a"], 3.0)
    assert totals.adapters == {"n/s": {"sql": AdapterCounts(arrivals=10, load_s=0.5)}}
