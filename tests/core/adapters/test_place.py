"""Placement: minimums, demand, eviction, surplus, draining pods."""

from collections import Counter
from dataclasses import replace

from tests.core.adapters.pods import (
    BUSY,
    RESIDENT,
    applied,
    engine_name,
    in_flight,
    pod,
    popular,
    replica,
    version,
)

from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.adapters.place import place
from penstock.core.adapters.replica import Copy


def test_all_puts_a_copy_on_every_pod() -> None:
    plan = place([version("a", Placement("All"))], [pod("p0", 2), pod("p1", 2)], {})
    assert set(plan.loads) == {(engine_name("a"), "p0"), (engine_name("a"), "p1")}
    assert plan.adapters[engine_name("a")].reason == "a copy on every pod"


def test_a_pod_that_refused_an_adapter_is_left_out() -> None:
    pods = [pod("p0", 2), pod("p1", 2)]
    name = engine_name("a")
    plan = place([version("a", Placement("All"))], pods, {}, refused={(name, "p0")})
    assert plan.loads == ((name, "p1"),)
    assert "its last load failed" in plan.adapters[name].reason


def test_more_copies_than_pods_are_explained() -> None:
    adapters = [version("a", Placement("Fixed", 5, 5)), version("b", Placement(min_copies=3))]
    plan = place(adapters, [pod("p", 4), pod("q", 4)], {})
    assert [plan.adapters[engine_name(name)].reason for name in "ab"] == [
        "a fixed number of 5; 2 now, one for each pod",
        "a minimum of 3; 2 now, one for each pod",
    ]


def test_minimum_copies_are_spread_over_the_pods() -> None:
    adapters = [version(f"a{i}", Placement(min_copies=1)) for i in range(8)]
    plan = place(adapters, [pod(f"p{i}", 4) for i in range(4)], {})
    assert Counter(name for _, name in plan.loads) == {f"p{i}": 2 for i in range(4)}


def test_an_adapter_without_demand_is_not_loaded() -> None:
    plan = place([version("a")], [pod("p0", 2)], {})
    assert plan.loads == ()
    wanted = plan.adapters[engine_name("a")]
    assert (wanted.copies, wanted.is_met, wanted.reason) == (0, True, "on demand")


def test_a_lost_popular_adapter_is_loaded_again() -> None:
    plan = place([version("a")], [pod("p0", 2)], popular(a=0.3))
    assert plan.loads == ((engine_name("a"), "p0"),)
    assert place([version("a")], [pod("p0", 2)], popular(a=0.1)).loads == ()


def test_more_requests_in_flight_get_more_copies() -> None:
    adapters = [version("hot"), version("cold")]
    pods = [pod("p0", 2, {"hot": BUSY}), *(pod(f"p{i}", 2) for i in range(1, 4))]
    plan = place(adapters, pods, in_flight(hot=30, cold=10))
    assert Counter(name for name, _ in plan.loads)[engine_name("hot")] == 3
    assert plan.adapters[engine_name("hot")].copies == 4


def test_a_maximum_bounds_the_copies() -> None:
    adapters = [version("hot", Placement(max_copies=2))]
    pods = [pod(f"p{i}", 2) for i in range(4)]
    assert len(place(adapters, pods, in_flight(hot=30)).loads) == 2


def test_the_copy_with_the_least_value_is_evicted() -> None:
    adapters = [version(name) for name in ("a", "b", "c")]
    pods = [pod("p0", 2, {"a": RESIDENT, "b": RESIDENT})]
    plan = place(adapters, pods, popular(a=1.0, b=0.1, c=1.0))
    assert plan.unloads == ((engine_name("b"), "p0"),)
    assert plan.loads == ((engine_name("c"), "p0"),)


def test_a_small_gain_moves_nothing() -> None:
    adapters = [version("a"), version("b")]
    pods = [pod("p0", 1, {"a": RESIDENT})]
    plan = place(adapters, pods, popular(a=1.0, b=1.9))
    assert (plan.loads, plan.unloads) == ((), ())


def test_a_copy_with_requests_is_never_unloaded() -> None:
    adapters = [version("a"), version("b", Placement(min_copies=1))]
    pods = [pod("p0", 1, {"a": BUSY})]
    plan = place(adapters, pods, {})
    assert (plan.loads, plan.unloads) == ((), ())
    assert not plan.adapters[engine_name("b")].is_met


def test_a_pinned_copy_is_never_evicted() -> None:
    adapters = [version("a", Placement(is_pinned=True)), version("b")]
    pods = [pod("p0", 1, {"a": RESIDENT})]
    assert place(adapters, pods, popular(b=100.0)).unloads == ()


def test_the_last_minimum_copy_is_never_evicted() -> None:
    adapters = [version("a", Placement(min_copies=1)), version("b")]
    pods = [pod("p0", 1, {"a": RESIDENT}), pod("p1", 1, {"a": RESIDENT})]
    plan = place(adapters, pods, popular(b=100.0))
    assert len(plan.unloads) == 1


def test_a_new_version_takes_idle_copies_of_the_old_one() -> None:
    """Although all slots have minimum copies. Neither takes them back, and a single copy stays."""
    old, new = AdapterVersion("a", "v1", Placement("All")), AdapterVersion("a", "v2")
    adapters = [
        old,
        replace(new, placement=Placement(min_copies=1)),
        version("b", Placement("All")),
    ]
    pods = [
        replica(name, 2, {old.engine_name: RESIDENT, engine_name("b"): RESIDENT})
        for name in ("p0", "p1", "p2")
    ]
    plan = place(adapters, pods, {})
    assert (plan.loads, plan.unloads) == (((new.engine_name, "p0"),), ((old.engine_name, "p0"),))
    after = applied(plan, pods)
    assert (place(adapters, after, {}).loads, place(adapters, after, {}).unloads) == ((), ())
    alone = place(adapters, pods[:1], {})
    assert (alone.loads, alone.unloads, alone.adapters[new.engine_name].is_met) == ((), (), False)
    busy = [replace(each, copies=dict.fromkeys(each.copies, BUSY)) for each in pods]
    assert place(adapters, busy, {}).unloads == ()


def test_a_higher_priority_goes_first() -> None:
    adapters = [
        version("low", Placement(min_copies=1)),
        version("high", Placement(min_copies=1, priority=1)),
    ]
    assert place(adapters, [pod("p0", 1)], {}).loads == ((engine_name("high"), "p0"),)


def test_a_version_that_nobody_wants_is_unloaded() -> None:
    assert place([], [pod("p0", 1, {"a": RESIDENT})], {}).unloads == ((engine_name("a"), "p0"),)
    assert place([], [pod("p0", 1, {"a": BUSY})], {}).unloads == ()


def test_an_adapter_loaded_by_hand_stays_and_takes_a_slot() -> None:
    pods = [replica("p0", 1, {"by-hand": RESIDENT})]
    plan = place([version("a")], pods, popular(a=10.0))
    assert (plan.loads, plan.unloads) == ((), ())


def test_what_an_engine_moved_to_its_disk_is_unloaded() -> None:
    pods = [pod("p0", 1, {"a": Copy("Evicted"), "b": RESIDENT})]
    plan = place([version("a"), version("b")], pods, {})
    assert plan.unloads == ((engine_name("a"), "p0"),)


def test_copies_above_a_fixed_number_are_unloaded() -> None:
    adapters = [version("a", Placement("Fixed", min_copies=1))]
    pods = [pod("p0", 1, {"a": RESIDENT}), pod("p1", 1, {"a": BUSY})]
    assert place(adapters, pods, {}).unloads == ((engine_name("a"), "p0"),)


def test_each_side_of_a_rollout_keeps_a_copy_above_a_fixed_number() -> None:
    """The gateway loads one on each side: an unload would only bring the next load on demand."""
    fixed = (version("a", Placement("Fixed", 1, 1)),)
    pods = [
        pod(f"p{i}", 2, {"a": RESIDENT}, side=side) for i, side in enumerate(("r1", "r1", "r2"))
    ]
    plan = place(fixed, pods, {})
    assert len(plan.unloads) == 1
    assert plan.unloads[0][1] in ("p0", "p1")
    assert not place(fixed, applied(plan, pods), {}).unloads


def test_a_failed_load_is_not_repeated_while_it_is_blocked() -> None:
    adapters = [version("a", Placement(min_copies=1))]
    plan = place(adapters, [pod("p0", 1)], {}, blocked={engine_name("a")})
    assert plan.loads == ()
    assert plan.adapters[engine_name("a")].reason.endswith("its last load failed")


def test_a_settled_placement_changes_nothing() -> None:
    adapters = [version(f"a{i}") for i in range(20)]
    demand = popular(**{f"a{i}": 20 / (i + 1) for i in range(20)})
    pods = [pod(f"p{i}", 3) for i in range(3)]
    for _ in range(4):
        plan = place(adapters, pods, demand)
        pods = applied(plan, pods)
    assert (plan.loads, plan.unloads) == ((), ())
    assert sum(len(p.copies) for p in pods) == 9
