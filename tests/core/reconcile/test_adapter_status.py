"""Status of a LoraAdapter: conditions, instances, demand and Events."""

import inspect
import re
from dataclasses import replace
from typing import Any

import pytest
from tests.core.reconcile.adapter_objects import LATER, NOW, SQL, adapter

from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.adapters.demand import AdapterCounts
from penstock.core.adapters.fetched import FetchedVersion
from penstock.core.adapters.shown_demand import ShownDemand, stored_demand
from penstock.core.observed.name_claims import Standing, adapter_claim
from penstock.core.reconcile import adapter_acceptance, adapter_conditions
from penstock.core.reconcile.adapter_condition_types import ADAPTER_MEANINGS, ADAPTER_REASONS
from penstock.core.reconcile.adapter_state import (
    AdapterState,
    Cause,
    FetchStep,
    Instance,
    LoadError,
)
from penstock.core.reconcile.adapter_status import adapter_events, adapter_status, changed_fields
from penstock.core.reconcile.condition_types import page
from penstock.core.rollout.adapter_events import AdapterInputs
from penstock.core.rollout.adapter_rollout import step_adapter
from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.service import Object

ON_DEMAND = AdapterState(num_engines=2, wanted=0)
LOADED = AdapterState(
    num_engines=2, wanted=2, rank=8, size_bytes=4096,
    instances=(Instance("chat-a", "Loaded"), Instance("chat-b", "Loaded")), can_answer=True,
)  # fmt: skip
BAD_FILES = LoadError("AdapterNotFound", "there is no folder")


def status_of(state: AdapterState, stored: Object | None = None, now: str = NOW) -> Object:
    return adapter_status(SQL, state, None, stored or {}, now)


def conditions(status: Object) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_an_adapter_with_all_its_copies() -> None:
    status = status_of(LOADED)
    assert conditions(status) == {
        "Accepted": ("True", "Accepted"),
        "Resolved": ("True", "Resolved"),
        "Loaded": ("True", "AllLoaded"),
        "RolledOut": ("True", "Stable"),
        "Ready": ("True", "Ready"),
        "Reconciling": ("False", "Settled"),
        "Stalled": ("False", "NotStalled"),
    }
    assert status | {"conditions": []} == {
        "observedGeneration": 3,
        "modelName": "chat-sql",
        "revision": SQL.version.revision,
        "rank": 8,
        "sizeBytes": 4096,
        "desiredReplicas": 2,
        "loadedReplicas": 2,
        "instances": [
            {"podName": "chat-a", "state": "Loaded"},
            {"podName": "chat-b", "state": "Loaded"},
        ],
        "pool": "Shared",
        "dedicatedService": None,
        "poolGeneration": None,
        "poolChangeTime": None,
        "demand": None,
        "lastUsedTime": None,
        "fetchedVersions": None,
        "conditions": [],
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"wanted": 0, "instances": ()},
            ["Resolved=Unknown/NotRead", "Loaded=True/OnDemand", "Ready=True/Ready",
             "Reconciling=False/Settled"],
        ),
        (
            {"wanted": 0, "instances": (), "is_full": True},
            ["Loaded=False/NoAdapterSlot", "Ready=False/NoAdapterSlot", "Stalled=False/NotStalled"],
        ),
        (
            {"num_engines": 0, "instances": ()},
            ["Loaded=False/NoEngines", "Ready=False/NoEngines", "Reconciling=True/NoEngines"],
        ),
        (
            {"instances": (Instance("chat-a", "Loaded"), Instance("chat-b", "Loading"))},
            ["Loaded=False/Loading", "Ready=True/Ready", "Reconciling=True/Loading",
             "Stalled=False/NotStalled"],
        ),
        (
            {"instances": (), "has_slot": False},
            ["Loaded=False/NoAdapterSlot", "Ready=False/NoAdapterSlot", "Reconciling=True/NoAdapterSlot"],
        ),
        (
            {"instances": (Instance("chat-a", "Failed"),), "failure": BAD_FILES},
            ["Resolved=False/AdapterNotFound", "Loaded=False/LoadFailed", "Ready=False/AdapterNotFound",
             "Reconciling=False/AdapterNotFound", "Stalled=True/AdapterNotFound"],
        ),
        (
            {"wanted": 0, "instances": (), "failure": BAD_FILES},
            ["Resolved=False/AdapterNotFound", "Loaded=False/LoadFailed", "Ready=False/AdapterNotFound"],
        ),
        (
            {"instances": (), "failure": LoadError("Busy", "all in use", is_final=False)},
            ["Resolved=Unknown/NotRead", "Loaded=False/LoadFailed", "Ready=False/LoadFailed",
             "Reconciling=True/LoadFailed", "Stalled=False/NotStalled"],
        ),
        (
            {"instances": (Instance("chat-a", "Loaded", revision="00000000"), Instance("chat-b", "Loading"))},
            ["Resolved=Unknown/NotRead", "Loaded=False/Loading", "Ready=False/Loading"],
        ),
        (
            {"wanted": None, "instances": ()},
            ["Loaded=Unknown/Loading", "Ready=False/Loading", "Reconciling=True/Loading"],
        ),
        (
            {"refusal": Cause("LoraNotEnabled", "no")},
            ["Accepted=False/LoraNotEnabled", "Resolved=Unknown/LoraNotEnabled", "Ready=False/LoraNotEnabled",
             "Reconciling=False/LoraNotEnabled", "Stalled=True/LoraNotEnabled"],
        ),
        (
            {"refusal": Cause("ServiceNotFound", "no")},
            ["Accepted=False/ServiceNotFound", "Reconciling=True/ServiceNotFound",
             "Stalled=False/NotStalled"],
        ),
    ],
)  # fmt: skip
def test_conditions(changes: Any, expected: list[str]) -> None:
    found = conditions(status_of(replace(LOADED, **changes)))
    texts = {kind: f"{kind}={status}/{reason}" for kind, (status, reason) in found.items()}
    assert [texts[each.partition("=")[0]] for each in expected] == expected
    assert not (found["Reconciling"][0] == found["Stalled"][0] == "True")


@pytest.mark.parametrize(
    ("changes", "ready", "reconciling"),
    [
        ({"wanted": 3}, ("True", "Ready"), ("False", "Settled")),
        ({"wanted": 3, "has_slot": False}, ("True", "Ready"), ("False", "Settled")),
        ({"wanted": 1, "instances": ()}, ("True", "Ready"), ("False", "Settled")),
        (
            {"wanted": 1, "instances": (), "has_slot": False},
            ("False", "NoAdapterSlot"), ("False", "Settled"),
        ),
        (
            {"wanted": 1, "instances": (), "failure": BAD_FILES},
            ("False", "AdapterNotFound"), ("False", "AdapterNotFound"),
        ),
        ({"num_engines": 0, "instances": ()}, ("False", "NoEngines"), ("True", "NoEngines")),
    ],
)  # fmt: skip
def test_copies_for_demand_come_and_go(
    changes: Any, ready: tuple[str, str], reconciling: tuple[str, str]
) -> None:
    on_demand = replace(SQL, version=replace(SQL.version, placement=Placement()))
    status = adapter_status(on_demand, replace(LOADED, **changes), None, {}, NOW)
    found = conditions(status)
    assert (found["Ready"], found["Reconciling"]) == (ready, reconciling)


@pytest.mark.parametrize("placement", [Placement(), Placement("All", 1)])
@pytest.mark.parametrize(
    ("at_zero", "failure", "ready", "loaded", "reconciling"),
    [
        (
            "ScaledToZero", None,
            ("True", "ScaledToZero"), ("True", "ScaledToZero"), ("False", "Settled"),
        ),
        ("Waking", None, ("True", "Waking"), ("False", "Waking"), ("False", "Settled")),
        # A version that engines refused before is still refused.
        (
            "ScaledToZero", BAD_FILES,
            ("False", "AdapterNotFound"), ("True", "ScaledToZero"), ("False", "AdapterNotFound"),
        ),
    ],
)  # fmt: skip
def test_an_adapter_of_a_service_at_zero_is_as_ready_as_the_service(
    placement: Placement,
    at_zero: str,
    failure: LoadError | None,
    ready: tuple[str, str],
    loaded: tuple[str, str],
    reconciling: tuple[str, str],
) -> None:
    resource = replace(SQL, version=replace(SQL.version, placement=placement))
    found = conditions(
        adapter_status(resource, AdapterState(at_zero=at_zero, failure=failure), None, {}, NOW)
    )
    assert (found["Ready"], found["Loaded"], found["Reconciling"]) == (ready, loaded, reconciling)


def test_what_an_engine_has_read_stays_known_until_the_version_changes() -> None:
    stored = status_of(LOADED)
    unloaded = status_of(ON_DEMAND, stored, LATER)
    assert conditions(unloaded)["Resolved"] == ("True", "Resolved")
    assert (unloaded["rank"], unloaded["sizeBytes"]) == (8, 4096)
    other = replace(SQL, version=AdapterVersion("sql", "pvc://adapters/sql-2"))
    changed = adapter_status(other, ON_DEMAND, None, stored, LATER)
    assert conditions(changed)["Resolved"] == ("Unknown", "NotRead")
    assert changed["rank"] is None


def test_a_settled_status_is_not_written_again() -> None:
    stored = {name: value for name, value in status_of(LOADED).items() if value is not None}
    assert changed_fields(stored, status_of(LOADED, stored, LATER)) == {}
    fewer = replace(LOADED, wanted=1, instances=LOADED.instances[:1])
    assert changed_fields(stored, status_of(fewer, stored, LATER)).keys() == {
        "desiredReplicas", "loadedReplicas", "instances", "conditions",
    }  # fmt: skip


def test_only_so_many_instances_are_listed() -> None:
    many = tuple(Instance(f"chat-{n:03}", "Loaded") for n in range(100))
    status = status_of(replace(LOADED, wanted=100, instances=many))
    assert len(status["instances"]) == 64
    assert status["loadedReplicas"] == 100


def test_demand_in_the_status() -> None:
    assert adapter_status(SQL, LOADED, ShownDemand("0", None, 0, 0), {}, NOW)["demand"] is None
    used = adapter_status(SQL, LOADED, ShownDemand("1.5", 0.0, 0, 0), {}, NOW)
    assert used["demand"] == {"requestsPerSecond": "1.5"}
    assert used["lastUsedTime"] == "1970-01-01T00:00:00Z"
    assert stored_demand(used, AdapterCounts(), 5.0) == ShownDemand("1.5", 0.0, 5.0, 0)
    idle = adapter_status(SQL, LOADED, ShownDemand("0", 0.0, 60, 9), used, NOW)
    assert idle["demand"] == {"requestsPerSecond": "0"}
    assert adapter_status(SQL, LOADED, None, used, NOW)["demand"] == used["demand"]


def test_events() -> None:
    def events(before: AdapterState | None, after: AdapterState) -> list[tuple[str, str]]:
        stored = {} if before is None else status_of(before)
        return [each[:2] for each in adapter_events(stored, status_of(after, stored))]

    loading = replace(LOADED, instances=())
    failed = replace(loading, failure=BAD_FILES)
    busy = replace(loading, failure=LoadError("Busy", "all in use", is_final=False))
    assert events(None, ON_DEMAND) == []
    assert events(loading, LOADED) == [("Normal", "Loaded")]
    assert events(LOADED, LOADED) == []
    assert events(loading, failed) == [("Warning", "AdapterNotFound")]
    assert events(loading, busy) == [("Warning", "LoadFailed")]
    refused = replace(LOADED, refusal=Cause("LoraNotEnabled", "no"))
    assert events(LOADED, refused) == [("Warning", "LoraNotEnabled")]


@pytest.mark.parametrize("failure", [None, BAD_FILES])
def test_an_accepted_adapter_is_taken_and_not_said_to_be_served(failure: LoadError | None) -> None:
    accepted, *_ = status_of(replace(ON_DEMAND, failure=failure))["conditions"]
    assert (accepted["type"], accepted["message"]) == (
        "Accepted",
        "chat takes the adapter 'chat-sql'",
    )


def test_an_adapter_that_waits_for_its_service_needs_no_change_of_its_own() -> None:
    missing = Cause("ServiceNotFound", "the namespace has no InferenceService chat; create it")
    *_, stalled = status_of(AdapterState(refusal=missing))["conditions"]
    assert (stalled["type"], stalled["status"], stalled["message"]) == (
        "Stalled",
        "False",
        "no change of the adapter is required",
    )


REFUSED = AdapterState(refusal=Cause("ServiceNotFound", "create it"))


@pytest.mark.parametrize(
    ("state", "stored", "expected"),
    [
        (ON_DEMAND, None, None),
        (ON_DEMAND, "former", None),
        (ON_DEMAND, "chat-sql", "chat-sql"),
        (LOADED, None, "chat-sql"),
        (LOADED, "former", "chat-sql"),
        (replace(ON_DEMAND, failure=BAD_FILES), None, None),
        (REFUSED, None, None),
        (REFUSED, "former", None),
        (REFUSED, "chat-sql", "chat-sql"),
    ],
)
def test_the_status_has_the_model_name_under_which_the_adapter_could_answer(
    state: AdapterState, stored: str | None, expected: str | None
) -> None:
    assert status_of(state, {"modelName": stored})["modelName"] == expected


def test_a_renamed_adapter_that_is_refused_answers_under_no_name() -> None:
    resolved = {"type": "Resolved", "status": "True", "lastTransitionTime": NOW}
    served = {"revision": SQL.version.revision, "modelName": "former", "conditions": [resolved]}
    refused = status_of(REFUSED, served) | {"stableRevision": "r"}
    assert refused["modelName"] is None
    assert adapter_claim(adapter("sql", **refused)).precedence.standing is Standing.REFUSED
    accepted = status_of(replace(ON_DEMAND, can_answer=True), served) | {"stableRevision": "r"}
    assert adapter_claim(adapter("sql", **accepted)).precedence.standing is Standing.ESTABLISHED


def test_an_adapter_whose_short_name_is_held_elsewhere_says_so() -> None:
    *others, conflict = status_of(replace(LOADED, name_conflict="b/sql has it"))["conditions"]
    assert others == status_of(LOADED)["conditions"]
    assert (conflict["type"], conflict["status"], conflict["message"]) == (
        "ModelNameConflict",
        "True",
        "b/sql has it",
    )


NOT_REASONS = {"True", "False", "Unknown", "Pending", "Evicted", "Failed", "LoraAdapter", "ModelRoute"} | {
    "InferenceService"
}  # fmt: skip


def test_every_reason_is_documented() -> None:
    source = inspect.getsource(adapter_conditions) + inspect.getsource(adapter_acceptance)
    words = set(re.findall(r'"([A-Z][A-Za-z]+)"', source))
    documented = {*ADAPTER_MEANINGS, *ADAPTER_REASONS}
    assert words - NOT_REASONS <= documented
    assert all(f"`{name}`" in page() for name in documented)


FETCHING = FetchStep("Fetching", "the pod sql-fetch fetches hf://org/sql")
GATED = FetchStep("GatedModel", "org/sql is gated", is_final=True)


@pytest.mark.parametrize(("step", "truth"), [(FETCHING, "Unknown"), (GATED, "False")])
def test_an_adapter_whose_first_version_is_not_there_yet(step: FetchStep, truth: str) -> None:
    status = status_of(replace(ON_DEMAND, fetch=step))
    is_stalled = step.is_final
    assert conditions(status) == {
        "Accepted": ("True", "Accepted"),
        "Resolved": (truth, step.reason),
        "Loaded": (truth, step.reason),
        "RolledOut": (truth, step.reason),
        "Ready": ("False", step.reason),
        "Reconciling": (str(not is_stalled), step.reason),
        "Stalled": (str(is_stalled), step.reason if is_stalled else "NotStalled"),
    }
    assert status["modelName"] is None


@pytest.mark.parametrize("step", [FETCHING, GATED])
def test_what_serves_is_ready_while_the_next_version_is_fetched(step: FetchStep) -> None:
    inputs = AdapterInputs(CanarySpec(), SQL.version.revision, now_s=0.0)
    rollout = step_adapter(SQL.version, {}, inputs)
    state = replace(LOADED, fetch=step)
    status = adapter_status(SQL, state, None, {}, NOW, rollout)
    found = conditions(status)
    assert [found[kind] for kind in ("Resolved", "Loaded", "Ready", "RolledOut")] == [
        ("True", "Resolved"), ("True", "AllLoaded"), ("True", "Ready"), ("False", step.reason),
    ]  # fmt: skip
    is_stalled = step.is_final
    assert found["Reconciling"] == (str(not is_stalled), step.reason)
    assert found["Stalled"][0] == str(is_stalled)
    (rolled_out,) = (each for each in status["conditions"] if each["type"] == "RolledOut")
    assert rolled_out["message"] == f"{step.message}; revision {SQL.version.revision} serves"


def test_fetched_versions_stay_in_the_status_until_others_are_known() -> None:
    record = {"revision": "a", "claimName": "cache", "resolvedURI": "hf://org/sql@1"}
    stored = {"fetchedVersions": [record]}
    assert status_of(LOADED, stored)["fetchedVersions"] == [record]
    known = replace(LOADED, fetched=(FetchedVersion("b", "cache", "hf://org/sql@2"),))
    assert [each["revision"] for each in status_of(known, stored)["fetchedVersions"]] == ["b"]
    assert status_of(replace(LOADED, fetched=()), stored)["fetchedVersions"] is None


def test_an_event_reports_a_version_that_cannot_be_fetched() -> None:
    inputs = AdapterInputs(CanarySpec(), SQL.version.revision, now_s=0.0)
    rollout = step_adapter(SQL.version, {}, inputs)

    def events(before: FetchStep | None, after: FetchStep | None) -> list[tuple[str, str]]:
        stored, made = (
            adapter_status(SQL, replace(LOADED, fetch=step), None, {}, NOW, rollout)
            for step in (before, after)
        )
        return [(kind, reason) for kind, reason, _ in adapter_events(stored, made)]

    assert events(FETCHING, GATED) == [("Warning", "GatedModel")]
    assert events(GATED, GATED) == events(None, FETCHING) == events(GATED, FETCHING) == []
