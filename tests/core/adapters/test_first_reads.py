"""Tests of the loads of adapters that no engine has read yet."""

from tests.core.adapters.pods import BUSY, RESIDENT, engine_name, pod

from penstock.core.adapters.first_reads import first_reads
from penstock.core.adapters.place import PlacementPlan
from penstock.core.adapters.replica import Copy

NAMES = [engine_name(each) for each in "abc"]
A, B, C = NAMES


def test_one_on_each_pod_and_a_slot_stays_free() -> None:
    pods = [pod("p", 3, {"x": RESIDENT}), pod("q", 2, {"x": RESIDENT}), pod("r", 2)]
    assert list(first_reads(NAMES, pods, PlacementPlan())) == [(A, "p"), (B, "r")]


def test_what_is_known_or_placed_is_not_read() -> None:
    pods = [pod("p", 4, {"a": BUSY}), pod("q", 4), pod("r", 4)]
    plan = PlacementPlan(loads=((B, "r"),))
    assert list(first_reads(NAMES, pods, plan)) == [(C, "p")]


def test_not_while_a_pod_loads() -> None:
    pods = [pod("p", 4, {"x": Copy("Loading")})]
    assert list(first_reads(NAMES, pods, PlacementPlan(), failing=[A])) == []


def test_what_did_not_load_for_a_request_is_read_without_a_free_slot() -> None:
    pods = [pod("p", 1, {"x": BUSY}), pod("q", 4), pod("r", 1, {"y": RESIDENT})]
    plan = PlacementPlan()
    assert list(first_reads(NAMES, pods, plan, failing=[C])) == [(C, "p"), (A, "q")]
