"""Choosing a pod: weights, load, ejection."""

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.routing import Endpoint, NoEndpoint, Pick, PodHealth, pick


def chosen(endpoints: list[Endpoint], weights: dict[str, int], **kwargs: object) -> str | None:
    defaults: dict[str, object] = {"tried": set(), "draw": 0.0, "now": 0.0}
    health = kwargs.pop("health", {})
    result = pick(endpoints, weights, health, **(defaults | kwargs))  # type: ignore[arg-type]
    return result.endpoint.pod if isinstance(result, Pick) else None


A, B, C = (Endpoint(p, f"{p}:1", "r1") for p in "abc")


def test_the_least_loaded_pod_wins() -> None:
    busy = Endpoint("a", "a:1", "r1", in_flight=3)
    assert chosen([busy, Endpoint("b", "b:1", "r1", in_flight=2)], {"r1": 100}) == "b"


def test_a_revision_without_weight_gets_nothing() -> None:
    result = pick([A], {"r2": 100}, {}, tried=(), draw=0.5, now=0)
    assert result == NoEndpoint("no pod of a revision with traffic is ready")


def test_tried_pods_are_left_out_while_there_are_others() -> None:
    assert chosen([A, B], {"r1": 100}, tried={"a"}) == "b"
    assert chosen([A, B], {"r1": 100}, tried={"a", "b"}) in ("a", "b")


def test_two_failures_eject_and_time_brings_back() -> None:
    health = {"a": PodHealth().failed(10.0).failed(10.0)}
    assert chosen([A, B], {"r1": 100}, health=health, now=11.0) == "b"
    assert chosen([A], {"r1": 100}, health=health, now=11.0) == "a"  # never the last one
    assert not health["a"].is_ejected(12.1)


def test_each_further_failure_doubles_the_pause_to_a_limit() -> None:
    health = PodHealth()
    pauses = []
    for _ in range(10):
        health = health.failed(0.0)
        pauses.append(health.ejected_until_s)
    assert pauses == [0, 2, 4, 8, 16, 30, 30, 30, 30, 30]


def test_weights_hold_within_sampling_error() -> None:
    draws = random.Random(7)
    pods = [Endpoint("s", "s:1", "stable"), Endpoint("c", "c:1", "canary")]
    total = 20_000
    hits = sum(
        chosen(pods, {"stable": 95, "canary": 5}, draw=draws.random()) == "c" for _ in range(total)
    )
    error = 4 * math.sqrt(0.05 * 0.95 / total)
    print(f"seed 7: canary share {hits / total:.4f} of 0.05 ± {error:.4f}")
    assert abs(hits / total - 0.05) < error


@given(
    st.lists(
        st.builds(
            Endpoint,
            pod=st.text("abcdef", min_size=1, max_size=3),
            address=st.just("x:1"),
            revision=st.sampled_from(["r1", "r2", "r3"]),
            in_flight=st.integers(0, 9),
        ),
        max_size=8,
    ),
    st.dictionaries(st.sampled_from(["r1", "r2", "r3"]), st.integers(0, 100)),
    st.floats(0, 1, exclude_max=True),
)
def test_a_pick_is_always_one_of_the_carrying_pods(
    endpoints: list[Endpoint], weights: dict[str, int], draw: float
) -> None:
    result = pick(endpoints, weights, {}, tried=(), draw=draw, now=0.0)
    carrying = [e for e in endpoints if weights.get(e.revision, 0) > 0]
    if isinstance(result, NoEndpoint):
        assert carrying == []
    else:
        assert result.endpoint in carrying
