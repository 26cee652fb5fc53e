"""Placement of the adapters of one service: which failed loads are remembered."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.clients.pods.engine_adapters import Copies, EngineFailure
from penstock.controller.adapters.copy_changes import Change
from penstock.controller.adapters.lora_pods import LoraPod
from penstock.controller.adapters.service import AdapterService, ServiceInputs
from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.adapters.demand import AdapterCounts
from penstock.core.adapters.replica import Copy
from penstock.core.observed.lora_engine import LoraEngine

SQL = AdapterVersion("sql", "pvc://adapters/sql")
NAME = SQL.engine_name
OTHER = AdapterVersion("other", "pvc://adapters/other")
ENDED = EngineFailure("Unanswered", "Unanswered", "the engine does not answer: ClientOSError")
REFUSED = EngineFailure("Refused", "RankTooLarge", "rank 64 is above 16")
BUSY = EngineFailure("Busy", "NoFreeSlot", "all adapters in memory are in use")


class NoChanges:
    """Changes that are never started."""

    def expected(self, _pod: Any, listed: Copies) -> dict[str, Copy]:
        return dict(listed)

    def start(self, change: Change) -> None:
        pass


def service() -> AdapterService:
    return AdapterService(NoChanges())  # type: ignore[arg-type]


def pod(name: str, slots: int = 4) -> LoraPod:
    return LoraPod("team", "chat", name, "127.0.0.1:8000", LoraEngine("Penstock", slots))


def inputs(**copies: Copies) -> ServiceInputs:
    """Inputs with these pods and the copies that their engines list."""
    listed: Mapping[tuple[str, str], Copies] = {
        ("team", name): each for name, each in copies.items()
    }
    pods = {key: pod(key[1]) for key in listed}
    return ServiceInputs([SQL], [], {}, frozenset(copies), pods, listed, {}, {})


def wanted(of_pass: ServiceInputs) -> ServiceInputs:
    """The inputs with a copy wanted on every pod."""
    return replace(of_pass, versions=[replace(SQL, placement=Placement("All"))])


def test_a_refusal_is_forgotten_with_its_engine() -> None:
    it = service()
    it.run(inputs(a={}, b={}), 0.0)
    it.observe(Change("load", pod("a"), NAME, failure=REFUSED), 1.0)
    it.run(inputs(b={}), 2.0)
    assert (it.errors, it.backoff) == ({}, {})


def test_an_adapter_that_ends_engines_is_loaded_on_the_next_one_after_ever_longer_pauses() -> None:
    """An engine that ended is not ready: what its load says about the adapter must outlive it."""
    it = service()
    it.run(wanted(inputs(a={}, b={})), 0.0)
    it.observe(Change("load", pod("a"), NAME, failure=ENDED), 1.0)
    it.run(wanted(inputs(b={})), 2.0)
    assert it.plan.loads == ()
    it.run(wanted(inputs(b={})), 7.0)
    assert it.plan.loads == ((NAME, "b"),)
    it.observe(Change("load", pod("b"), NAME, failure=ENDED), 7.0)
    it.run(wanted(inputs(a={})), 16.0)
    assert it.plan.loads == ()
    it.run(wanted(inputs(a={})), 18.0)
    assert it.plan.loads == ((NAME, "a"),)
    it.observe(Change("load", pod("a"), NAME), 19.0)
    it.run(wanted(inputs(a={NAME: Copy("Resident")})), 20.0)
    assert (it.errors, it.backoff) == ({}, {})


def test_a_refusal_stays_while_the_engine_is_there() -> None:
    it = service()
    it.run(inputs(a={}, b={}), 0.0)
    it.observe(Change("load", pod("a"), NAME, failure=REFUSED), 1.0)
    it.run(inputs(a={}, b={NAME: Copy("Resident")}), 100.0)
    assert it.errors[NAME].keys() == {"a"}
    it.run(inputs(a={NAME: Copy("Resident")}, b={NAME: Copy("Resident")}), 101.0)
    assert it.errors == {}


def test_a_busy_engine_is_forgotten_after_the_pause_once_another_has_the_copy() -> None:
    it = service()
    it.run(inputs(a={}, b={}), 0.0)
    it.observe(Change("load", pod("a"), NAME, failure=BUSY), 1.0)
    it.run(inputs(a={}, b={NAME: Copy("Resident")}), 2.0)
    assert it.errors[NAME].keys() == {"a"}
    it.run(inputs(a={}, b={NAME: Copy("Resident")}), 7.0)
    assert (it.errors, it.backoff) == ({}, {})


def test_what_a_gateway_could_not_load_is_loaded_once_to_learn_why() -> None:
    it = service()
    it.run(inputs(a={}), 0.0)
    failed = replace(inputs(a={}), counts={NAME: AdapterCounts(1, load_failures=1)})
    it.run(failed, 1.0)
    assert it.plan.loads == ((NAME, "a"),)
    it.observe(Change("load", pod("a"), NAME, failure=REFUSED), 1.5)
    it.run(failed, 2.0)
    assert it.plan.loads == ()


def test_what_a_gateway_could_not_load_is_forgotten_with_its_adapter() -> None:
    it = service()
    it.run(replace(inputs(a={}), counts={}), 0.0)
    it.run(replace(inputs(a={}), counts={NAME: AdapterCounts(1, load_failures=1)}), 1.0)
    assert it.lost == {NAME}
    it.run(replace(inputs(a={}), versions=[], counts={}), 2.0)
    assert it.lost == set()


def test_failures_before_the_first_pass_and_of_a_copy_that_is_there_now_do_not_count() -> None:
    it, copies = service(), {NAME: Copy("Resident")}
    it.run(replace(inputs(a={}), counts={NAME: AdapterCounts(9, load_failures=3)}), 0.0)
    assert it.plan.loads == ()
    it.run(replace(inputs(a=copies), counts={NAME: AdapterCounts(10, load_failures=4)}), 1.0)
    it.run(replace(inputs(a={}), counts={NAME: AdapterCounts(10, load_failures=4)}), 2.0)
    assert it.plan.loads == ()


def test_engines_are_full_when_every_slot_has_a_pinned_copy() -> None:
    it = service()
    pinned = [
        AdapterVersion(f"a{number}", "pvc://adapters/a", Placement("All", is_pinned=True))
        for number in range(4)
    ]
    copies = {each.engine_name: Copy("Resident") for each in pinned}
    it.run(replace(inputs(a=copies), versions=[SQL, *pinned]), 0.0)
    assert it.is_full
    it.run(replace(inputs(a=copies, b={}), versions=[SQL, *pinned]), 1.0)
    assert not it.is_full


def test_a_new_leader_begins_with_the_demand_that_statuses_show() -> None:
    it = service()
    it.run(replace(inputs(a={NAME: Copy("Resident")}), shown_per_s={NAME: 2.5}), 0.0)
    assert it.demand[NAME].requests_per_s == 2.5


def test_an_adapter_that_is_created_again_is_loaded_no_sooner() -> None:
    it, idle = service(), {OTHER.engine_name: Copy("Resident")}
    full = replace(wanted(inputs(a=idle)), pods={("team", "a"): pod("a", slots=1)})
    both = replace(full, versions=[*full.versions, OTHER])
    it.run(both, 0.0)
    assert it.plan.loads == ((NAME, "a"),)
    it.observe(Change("load", pod("a"), NAME, failure=REFUSED), 1.0)
    it.run(replace(both, versions=[OTHER]), 2.0)
    it.run(both, 3.0)
    assert (it.plan.loads, it.plan.unloads) == ((), ())
    assert it.errors[NAME].keys() == {"a"}
    free = replace(wanted(inputs(a={})), unread=[NAME])
    it.run(free, 5.9)
    assert it.plan.loads == ()
    it.run(free, 6.0)
    assert it.plan.loads == ((NAME, "a"),)


def test_the_failures_of_a_deleted_adapter_are_forgotten_after_an_hour() -> None:
    it, deleted = service(), replace(inputs(a={}), versions=[])
    it.run(inputs(a={}), 0.0)
    it.observe(Change("load", pod("a"), NAME, failure=REFUSED), 1.0)
    it.run(deleted, 3605.9)
    assert it.errors.keys() == it.backoff.keys() == {NAME}
    it.run(deleted, 3606.0)
    assert (it.errors, it.backoff) == ({}, {})
