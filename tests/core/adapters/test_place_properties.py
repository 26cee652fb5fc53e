"""Properties of placement and routing over random pods, adapters and demand."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.core.adapters.pods import RESIDENT, applied, replica, version

from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.adapters.demand import AdapterDemand
from penstock.core.adapters.place import PlacementPlan, place
from penstock.core.adapters.replica import AdapterReplica, Copy
from penstock.core.adapters.retention import is_own_name, min_copies, used_slots
from penstock.core.adapters.route import (
    DRAIN_AFTER_S,
    MAX_WAIT_S,
    DrainCopy,
    Load,
    Refuse,
    Send,
    Wait,
    route_adapter,
)
from penstock.core.adapters.service_copies import ServiceCopies

NAMES = [f"a{i}" for i in range(8)]
Demand = dict[str, AdapterDemand]


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    policy = draw(st.sampled_from(("All", "Fixed", "OnDemand")))
    least = draw(st.integers(0, 2)) if policy != "All" else 0
    most = draw(st.none() | st.integers(max(1, least), 4)) if policy == "OnDemand" else None
    return Placement(policy, least, most, draw(st.booleans()), draw(st.integers(0, 1)))


adapters = st.lists(st.sampled_from(NAMES), unique=True).flatmap(
    lambda names: st.tuples(*(placements().map(lambda p, n=n: version(n, p)) for n in names))
)
copies = st.builds(
    Copy,
    st.sampled_from(("Resident", "Resident", "Loading", "Evicted")),
    st.sampled_from((0, 0, 1)),
)
in_engines = st.sampled_from([*(version(n).engine_name for n in NAMES), "by-hand"])
demands = st.dictionaries(
    st.sampled_from([version(n).engine_name for n in NAMES]),
    st.builds(
        AdapterDemand,
        st.floats(0, 5),
        st.integers(0, 9),
        st.floats(0, 9),
    ),
)


@st.composite
def replicas(draw: st.DrawFn, copy: st.SearchStrategy[Copy] = copies) -> list[AdapterReplica]:
    pods = []
    for index in range(draw(st.integers(1, 4))):
        slots = draw(st.integers(1, 4))
        held = draw(st.dictionaries(in_engines, copy, max_size=slots))
        load = draw(st.floats(0, 9))
        pods.append(replica(f"p{index}", slots, held, load=load))
    return pods


def settled(
    versions: tuple[AdapterVersion, ...], pods: list[AdapterReplica], demand: Demand
) -> tuple[PlacementPlan, list[AdapterReplica]]:
    """The plan and the pods after many ticks in which every load succeeds and nothing else happens."""
    plan = PlacementPlan()
    for _ in range(30):
        plan = place(versions, pods, demand)
        if not plan.loads and not plan.unloads:
            break
        pods = applied(plan, pods)
    return plan, pods


@given(adapters, replicas(), demands)
def test_a_plan_keeps_to_slots_and_touches_only_what_it_may(
    versions: tuple[AdapterVersion, ...], pods: list[AdapterReplica], demand: Demand
) -> None:
    plan = place(versions, pods, demand)
    by_pod = {p.pod: p for p in pods}
    known = {v.engine_name: v for v in versions}
    assert len(set(plan.loads)) == len(plan.loads)
    for name, pod in plan.unloads:
        copy = by_pod[pod].copies[name]
        assert copy.requests == 0
        assert copy.state != "Loading"
        assert is_own_name(name)
        if (
            name in known
            and known[name].placement.policy == "OnDemand"
            and copy.state == "Resident"
        ):
            assert not known[name].placement.is_pinned or known[name].placement.max_copies
    for name, pod in plan.loads:
        assert name in known
        assert name not in by_pod[pod].copies or (name, pod) in plan.unloads
    for before, after in zip(pods, applied(plan, pods), strict=True):
        assert used_slots(after) <= max(before.slots, used_slots(before))


@given(adapters, replicas(st.just(RESIDENT)), demands)
def test_a_placement_settles_and_changes_nothing_more(
    versions: tuple[AdapterVersion, ...], pods: list[AdapterReplica], demand: Demand
) -> None:
    plan, _ = settled(versions, pods, demand)
    assert (plan.loads, plan.unloads) == ((), ())


@given(st.lists(st.integers(0, 4), max_size=8), st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_minimums_are_met_if_they_fit(minimums: list[int], slots: list[int]) -> None:
    """Minimums fit by the condition of Gale and Ryser, as a pod has at most one copy of an adapter."""
    wanted = sorted((min(least, len(slots)) for least in minimums), reverse=True)
    fits = all(
        sum(wanted[:k]) <= sum(min(each, k) for each in slots) for k in range(1, len(wanted) + 1)
    )
    versions = tuple(version(f"a{i}", Placement(min_copies=n)) for i, n in enumerate(minimums))
    plan, _ = settled(versions, [replica(f"p{i}", n) for i, n in enumerate(slots)], {})
    assert all(wanted.is_met for wanted in plan.adapters.values()) == fits


@given(adapters, replicas(st.just(RESIDENT)), demands)
def test_minimums_hold_before_all_demand(
    versions: tuple[AdapterVersion, ...], pods: list[AdapterReplica], demand: Demand
) -> None:
    """Every pod here has a slot for each adapter with a minimum, besides those that are pinned."""
    claims = [v for v in versions if v.placement.is_pinned or min_copies(v, len(pods))]
    pods = [replace(p, slots=len(claims) + 1) for p in pods]
    _, pods = settled(versions, pods, demand)
    counts = Counter(name for p in pods for name in p.copies)
    for each in versions:
        assert counts[each.engine_name] >= min_copies(each, len(pods))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8, unique=True), st.integers(1, 8))
def test_minimums_of_higher_priority_win(priorities: list[int], slots: int) -> None:
    versions = tuple(
        version(f"a{i}", Placement(min_copies=1, priority=p)) for i, p in enumerate(priorities)
    )
    lowest_first = sorted(versions, key=lambda v: v.placement.priority)
    full = {v.engine_name: RESIDENT for v in lowest_first[:slots]}
    _, pods = settled(versions, [replica("p0", slots, full)], {})
    highest = {v.engine_name for v in lowest_first[-slots:]}
    assert set(pods[0].copies) == highest


@given(
    st.sampled_from(NAMES), adapters, replicas(), demands, st.sampled_from((0.0, 29.0, MAX_WAIT_S))
)
def test_a_request_gets_what_it_may(
    name: str,
    versions: tuple[AdapterVersion, ...],
    pods: list[AdapterReplica],
    demand: Demand,
    waited_s: float,
) -> None:
    wanted = version(name).engine_name
    known = {v.engine_name: v for v in versions}
    by_pod = {p.pod: p for p in pods}
    resident = [
        p for p in by_pod.values() if wanted in p.copies and p.copies[wanted].state == "Resident"
    ]
    match route_adapter(wanted, pods, known, demand, waited_s):
        case Send(chosen):
            assert chosen == tuple(sorted(p.pod for p in resident))
            assert resident
        case Load(pod, evict, _):
            assert not resident
            target = by_pod[pod]
            assert all(copy.state != "Loading" for copy in target.copies.values())
            assert (evict is None) == (used_slots(target) < target.slots)
            if evict is not None:
                assert target.copies[evict].requests == 0
                assert not known[evict].placement.is_pinned
                held = sum(
                    evict in p.copies and p.copies[evict].state != "Evicted"
                    for p in by_pod.values()
                )
                assert held > min_copies(known[evict], len(by_pod))
        case Wait(reason):
            assert not resident
            assert reason
        case DrainCopy(pod, name):
            assert not resident
            assert waited_s >= DRAIN_AFTER_S
            assert used_slots(by_pod[pod]) >= by_pod[pod].slots
            # An idle copy cannot be evicted yet while its pod loads another adapter.
            is_loading = any(copy.state == "Loading" for copy in by_pod[pod].copies.values())
            assert by_pod[pod].copies[name].requests > 0 or is_loading
            assert not known[name].placement.is_pinned
        case Refuse():
            assert not resident
            assert waited_s >= MAX_WAIT_S


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            adapters,
            replicas(),
            replicas(),
            demands,
            st.sampled_from((0.0, DRAIN_AFTER_S)),
            st.frozensets(in_engines),
            st.frozensets(in_engines),
        ),
        max_size=4,
    )
)
def test_what_is_kept_of_earlier_choices_changes_no_choice(
    choices: list[
        tuple[
            str,
            tuple[AdapterVersion, ...],
            list[AdapterReplica],
            list[AdapterReplica],
            Demand,
            float,
            frozenset[str],
            frozenset[str],
        ]
    ],
) -> None:
    kept = ServiceCopies()
    for name, versions, pods, other_pods, demand, waited_s, claimed, draining in choices:
        able = [replace(p, draining_copies=draining) for p in pods]
        others = [replace(p, pod=f"other-{p.pod}") for p in other_pods]
        known = {each.engine_name: each for each in versions}
        inputs = version(name).engine_name, able, known, demand, waited_s, others, demand
        of_pods = {p.pod: claimed for p in pods}
        decision = route_adapter(*inputs, kept, of_pods)
        assert decision == route_adapter(*inputs, None, of_pods)
