"""The choice of a pod for one request of an adapter."""

from dataclasses import replace

import pytest
from tests.core.adapters.pods import BUSY, RESIDENT, engine_name, pod, popular, replica, version

from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.adapters.demand import AdapterDemand
from penstock.core.adapters.replica import AdapterReplica, Copy
from penstock.core.adapters.route import (
    DRAIN_AFTER_S,
    AdapterDecision,
    DrainCopy,
    Load,
    Refuse,
    Send,
    Wait,
    route_adapter,
)
from penstock.core.adapters.service_copies import ServiceCopies


def route(
    name: str,
    pods: list[AdapterReplica],
    demand: dict[str, AdapterDemand] | None = None,
    adapters: tuple[AdapterVersion, ...] = tuple(version(name) for name in "abcd"),
    waited_s: float = 0.0,
) -> AdapterDecision:
    versions = {v.engine_name: v for v in adapters}
    return route_adapter(engine_name(name), pods, versions, demand or {}, waited_s)


def test_all_pods_with_a_resident_copy() -> None:
    pods = [
        pod("p1", 1, {"a": RESIDENT}, load=5.0),
        pod("p0", 1, {"a": RESIDENT}, load=2.0),
        pod("p2", 1, load=0.0),
    ]
    assert route("a", pods) == Send(("p0", "p1"))


def test_copies_on_another_side_are_enough_for_a_minimum() -> None:
    """In a rollout each side has copies; those of one alone need not keep the minimum."""
    adapters = (version("a", Placement(min_copies=1)), version("b"))
    versions, pods = {v.engine_name: v for v in adapters}, [pod("new", 1, {"a": RESIDENT})]
    assert isinstance(route("b", pods, adapters=adapters), Wait)
    others = [pod("old", 1, {"a": RESIDENT})]
    decision = route_adapter(engine_name("b"), pods, versions, {}, 0.0, others)
    assert decision == Load("new", engine_name("a"), decision.reason)


def test_a_running_load_is_waited_for() -> None:
    pods = [pod("p0", 1, {"a": Copy("Loading")}), pod("p1", 1)]
    decision = route("a", pods)
    assert isinstance(decision, Wait)
    assert decision.pod == "p0"


def test_a_free_slot_comes_before_an_eviction() -> None:
    pods = [pod("p0", 1, {"b": RESIDENT}), pod("p1", 1)]
    assert route("a", pods) == Load("p1", None, "p1 has a free slot")


def test_the_coldest_idle_copy_is_evicted() -> None:
    pods = [pod("p0", 2, {"b": RESIDENT, "c": BUSY}), pod("p1", 1, {"d": RESIDENT})]
    decision = route("a", pods, popular(b=1.0, c=0.1, d=2.0))
    assert isinstance(decision, Load)
    assert (decision.pod, decision.evict) == ("p0", engine_name("b"))


def test_a_much_busier_pod_does_not_load() -> None:
    pods = [pod("p0", 1, load=10.0), pod("p1", 1, {"b": RESIDENT}, load=2.0)]
    decision = route("a", pods)
    assert isinstance(decision, Load)
    assert decision.pod == "p1"


def test_pinned_minimum_and_unknown_copies_are_not_evicted() -> None:
    adapters = (version("b", Placement(is_pinned=True)), version("c", Placement(min_copies=1)))
    pods = [pod("p0", 2, {"b": RESIDENT, "c": RESIDENT}), pod("p1", 1, {"d": RESIDENT})]
    assert isinstance(route("a", pods, adapters=adapters), Wait)


def test_a_pod_gets_as_many_loads_as_its_engine_does_at_once() -> None:
    loading = {"b": Copy("Loading")}
    assert isinstance(route("a", [pod("p0", 4, loading)]), Wait)
    assert isinstance(route("a", [pod("p0", 4, loading, loads_at_once=2)]), Load)
    loading["c"] = Copy("Loading")
    decision = route("a", [pod("p0", 4, loading, loads_at_once=2)])
    assert decision == Wait("every pod is loading other adapters")


def test_of_equal_pods_the_one_with_fewer_loads() -> None:
    pods = [pod("p0", 4, {"b": Copy("Loading")}, loads_at_once=4), pod("p1", 4, loads_at_once=4)]
    assert route("a", pods) == Load("p1", None, "p1 has a free slot")


def test_the_wait_is_bounded() -> None:
    pods = [pod("p0", 1, {"b": BUSY})]
    assert isinstance(route("a", pods, waited_s=29.0), DrainCopy)
    assert isinstance(route("a", pods, waited_s=30.0), Refuse)


def after_waiting(
    name: str, pods: list[AdapterReplica], adapters: tuple[AdapterVersion, ...] | None = None
) -> AdapterDecision:
    """The decision about a request that has waited for long. Of the others, a is wanted most."""
    adapters = adapters or tuple(version(name) for name in "abcd")
    versions = {v.engine_name: v for v in adapters}
    shown = {engine_name("a"): AdapterDemand(3.0), engine_name("b"): AdapterDemand(1.0)}
    return route_adapter(engine_name(name), pods, versions, {}, DRAIN_AFTER_S, (), shown)


def test_a_request_that_has_waited_for_long_closes_the_busy_copy_that_is_worth_least() -> None:
    pods = [pod("p0", 2, {"a": BUSY, "b": BUSY})]
    assert isinstance(route("c", pods, waited_s=DRAIN_AFTER_S - 0.1), Wait)
    decision = after_waiting("c", pods)
    reason = f"{engine_name('b')} on p0 takes no new requests, to make room"
    assert decision == DrainCopy("p0", engine_name("b"), reason)
    pods = [replace(pods[0], draining_copies=frozenset({engine_name("a")}))]
    reason = f"{engine_name('a')} on p0 takes no new requests, to make room"
    assert after_waiting("c", pods) == DrainCopy("p0", engine_name("a"), reason)


@pytest.mark.parametrize(
    "placement", [Placement(is_pinned=True), Placement(min_copies=1), Placement(priority=1)]
)
def test_copies_that_are_not_evicted_are_not_closed(placement: Placement) -> None:
    adapters = (version("b", placement), version("c"))
    assert isinstance(after_waiting("c", [pod("p0", 1, {"b": BUSY})], adapters), Wait)
    assert isinstance(
        after_waiting("c", [pod("p0", 1, {"b": BUSY})], (version("b"), version("c"))), DrainCopy
    )


def test_an_idle_copy_is_unloaded_instead() -> None:
    pods = [pod("p0", 2, {"a": BUSY, "b": RESIDENT})]
    assert isinstance(after_waiting("c", pods), Load)


def test_a_closed_copy_gets_no_requests() -> None:
    draining = replace(pod("p0", 1, {"a": BUSY}), draining_copies=frozenset({engine_name("a")}))
    assert isinstance(route("a", [draining]), Wait)
    assert isinstance(after_waiting("a", [draining]), Wait)
    assert route("a", [draining, pod("p1", 1, {"a": RESIDENT}, load=9.0)]) == Send(("p1",))
    decision = route("a", [draining, pod("p1", 1)])
    assert isinstance(decision, Load)
    assert decision.pod == "p1"


def test_another_copy_is_closed_after_one_that_did_not_become_idle() -> None:
    timed_out = frozenset({engine_name("b")})
    decision = after_waiting(
        "c", [replace(pod("p0", 2, {"a": BUSY, "b": BUSY}), backing_off_copies=timed_out)]
    )
    reason = f"{engine_name('a')} on p0 takes no new requests, to make room"
    assert decision == DrainCopy("p0", engine_name("a"), reason)
    alone = replace(pod("p0", 1, {"b": BUSY}), backing_off_copies=timed_out)
    assert isinstance(after_waiting("c", [alone]), Wait)
    assert route("b", [alone]) == Send(("p0",))


def test_a_drain_does_not_pass_over_adapters_of_a_higher_priority() -> None:
    """A hundred pods may have a thousand such adapters."""

    class CountingVersions(dict[str, AdapterVersion]):
        num_looks = 0

        def __getitem__(self, name: str) -> AdapterVersion:
            self.num_looks += 1
            return super().__getitem__(name)

    high = [version(f"high-{number:02}", Placement(priority=1)) for number in range(50)]
    low, wanted = version("low"), version("wanted")
    versions = CountingVersions({each.engine_name: each for each in (*high, low, wanted)})
    copies = {each.engine_name: BUSY for each in (*high, low)}
    pods = [replica("p0", len(copies), copies)]
    counted = ServiceCopies()
    for most in (200, 10):
        versions.num_looks = 0
        decision = route_adapter(
            wanted.engine_name, pods, versions, {}, DRAIN_AFTER_S, counted=counted
        )
        assert isinstance(decision, DrainCopy)
        assert decision.engine_name == low.engine_name
        assert versions.num_looks <= most
