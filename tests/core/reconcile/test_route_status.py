"""Status of a ModelRoute: conditions, backends and gateways."""

import inspect
import re
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.core.observed.name_claims import (
    MODEL_NAME_CONFLICT,
    NameClaim,
    alias_claims,
    route_claim,
)
from penstock.core.observed.name_index import NameIndex
from penstock.core.reconcile import name_conflict as conflicts
from penstock.core.reconcile import route_status as module
from penstock.core.reconcile.condition_types import ROUTE_MEANINGS, ROUTE_REASONS, page
from penstock.core.reconcile.route_status import RouteInputs, route_status
from penstock.core.spec.service import Object

NOW = "2026-01-01T01:00:00Z"


def service(answers: str = "True") -> Object:
    conditions = [{"type": "TrafficAvailable", "status": answers}]
    return {"metadata": {}, "status": {"conditions": conditions}}


def route(name: str = "front", *rules: Object, created: int = 0, **more: Any) -> Object:
    metadata = {
        "name": name, "namespace": "a", "generation": 3,
        "creationTimestamp": f"2026-01-01T00:00:{created:02d}Z",
    }  # fmt: skip
    wanted = rules or ({"name": "all", "backendRefs": [{"name": "old"}, {"name": "new"}]},)
    return {"metadata": metadata, "spec": {"modelName": "chat", "rules": list(wanted)}, **more}


# Of a route that has answered.
ANSWERED = {"modelName": "chat"}
SERVICES = {"old": service(), "new": service()}
APPLIED = {"gateway-1": 3, "gateway-2": 3}


def status_of(mine: Object, routes: Iterable[Object] = (), **changes: Any) -> Object:
    """The status of a route beside others."""
    inputs: dict[str, Any] = {
        "names": NameIndex(map(route_claim, (mine, *routes))), "services": SERVICES, "revisions": {},
        "applied": APPLIED,
    }  # fmt: skip
    return route_status(mine, RouteInputs(**(inputs | changes)), NOW)


def conditions(status: Object) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def test_a_route_that_answers() -> None:
    status = status_of(route())
    assert conditions(status) == {
        "Accepted": ("True", "Accepted"),
        "ResolvedRefs": ("True", "ResolvedRefs"),
        "Programmed": ("True", "Programmed"),
        "Ready": ("True", "Ready"),
        "Reconciling": ("False", "Settled"),
        "Stalled": ("False", "NotStalled"),
    }
    assert status["observedGeneration"] == 3
    assert status["gateways"] == {"total": 2, "programmed": 2}
    assert status["backends"] == [
        {"rule": "all", "kind": "InferenceService", "name": name, "ready": "True"}
        for name in ("old", "new")
    ]
    assert status_of(route(status=status)) == status


def test_the_claim_counts_before_the_status_is_written() -> None:
    first, second = route("first"), route("second", created=5)
    names = NameIndex(map(route_claim, (first, second)))
    status = status_of(second, names=names, services={})
    assert conditions(status)["Accepted"] == ("False", "ModelNameInUse")
    assert names.get(route_claim(second).key) == route_claim(second | {"status": status})
    status = status_of(first, names=names)
    assert names.get(route_claim(first).key) == route_claim(first | {"status": status})


MIRROR = {"backendRef": {"name": "new"}, "revision": "r1"}
MIRRORED = {"name": "all", "backendRefs": [{"name": "old"}], "mirrors": [MIRROR]}
FALLING_BACK = {"name": "all", "backendRefs": [{"name": "old"}], "fallbacks": [{"name": "new"}]}
EXTERNAL = {"name": "all", "backendRefs": [{"kind": "ExternalModel", "name": "old"}]}
ADAPTED = {"name": "all", "backendRefs": [{"kind": "LoraAdapter", "name": "sql"}]}
UNWEIGHTED = {"name": "all", "backendRefs": [{"name": "old"}, {"name": "new", "weight": 0}]}
UNREADABLE = MIRRORED | {"matches": [{"headers": [
    {"name": "a", "type": "RegularExpression", "value": "[a-z]{1000}{1000}"},
]}]}  # fmt: skip
# The route, what is inputs it, the condition that fails, and the reasons of Ready, Reconciling and Stalled.
FAILURES: list[tuple[Object, dict[str, Any], str, str, str, str]] = [
    (
        route(created=5), {"routes": [route("other", status=ANSWERED)]},
        "Accepted", "ModelNameInUse", "ModelNameInUse", "ModelNameInUse",
    ),
    (route("front", UNREADABLE), {}, "Accepted", "InvalidMatches", "InvalidMatches", "InvalidMatches"),
    (
        route(), {"services": {"old": service()}},
        "ResolvedRefs", "BackendNotFound", "BackendNotFound", "NotStalled",
    ),
    (
        route("front", MIRRORED), {"services": {"old": service()}},
        "ResolvedRefs", "BackendNotFound", "BackendNotFound", "NotStalled",
    ),
    (
        route("front", FALLING_BACK), {"services": {"old": service()}},
        "ResolvedRefs", "BackendNotFound", "BackendNotFound", "NotStalled",
    ),
    (
        route("front", EXTERNAL), {},
        "ResolvedRefs", "BackendNotFound", "BackendNotFound", "NotStalled",
    ),
    (
        route("front", MIRRORED), {"revisions": {"new": frozenset({"r2"})}},
        "ResolvedRefs", "RevisionNotFound", "RevisionNotFound", "NotStalled",
    ),
    (
        route(), {"applied": APPLIED | {"gateway-3": 2}},
        "Programmed", "GatewaysBehind", "GatewaysBehind", "NotStalled",
    ),
    (
        route(), {"applied": APPLIED | {"gateway-3": None}},
        "Programmed", "GatewaysBehind", "GatewaysBehind", "NotStalled",
    ),
    (route(), {"applied": {}}, "Programmed", "NoGateways", "NoGateways", "NotStalled"),
    (route(), {"applied": None}, "Programmed", "NoGateways", "NoGateways", "NotStalled"),
    (
        route("front", UNWEIGHTED), {"services": SERVICES | {"old": service("False")}},
        "Ready", "BackendsNotReady", "Settled", "NotStalled",
    ),
    (
        route("front", UNWEIGHTED), {"services": SERVICES | {"old": {"metadata": {}}}},
        "Ready", "BackendsNotReady", "Settled", "NotStalled",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("mine", "inputs", "kind", "reason", "progress", "stalled"), FAILURES)
def test_a_route_that_does_not_answer(
    mine: Object, inputs: dict[str, Any], kind: str, reason: str, progress: str, stalled: str
) -> None:
    found = conditions(status_of(mine, **inputs))
    assert found[kind][1] == reason
    assert found[kind][0] != "True"
    assert found["Ready"] == ("False", reason)
    assert found["Reconciling"][1] == progress
    assert found["Stalled"][1] == stalled
    assert (found["Reconciling"][0], found["Stalled"][0]) != ("True", "True")


def with_aliases(mine: Object, *aliases: str) -> Object:
    return mine | {"spec": mine["spec"] | {"aliases": list(aliases)}}


def all_claims(*routes: Object) -> NameIndex:
    return NameIndex(claim for each in routes for claim in (route_claim(each), *alias_claims(each)))


def test_an_alias_answers_with_its_route() -> None:
    mine = with_aliases(route(), "gpt")
    down = status_of(mine, names=all_claims(mine), services={})
    assert down["aliases"] == [{"name": "gpt", "answers": "False"}]
    up = status_of(mine, names=all_claims(mine))
    assert up["aliases"] == [{"name": "gpt", "answers": "True"}]
    assert "AliasConflict" not in conditions(up)
    again = mine | {"status": up}
    assert status_of(again, names=all_claims(again), services={})["aliases"] == up["aliases"]


def test_an_alias_that_another_route_has() -> None:
    """Two routes of one namespace claim it: the older has it, and the other one answers by its own name."""
    answered = {"aliases": [{"name": "gpt", "answers": "True"}]}
    spec = {"modelName": "other", "rules": []}
    older = with_aliases(route("older", spec=spec, status=answered), "gpt")
    mine = with_aliases(route(created=5), "gpt", "gpt-2")
    status = status_of(mine, names=all_claims(older, mine))
    assert status["aliases"] == [
        {"name": "gpt", "answers": "False", "holder": "older"},
        {"name": "gpt-2", "answers": "True"},
    ]
    assert conditions(status)["Ready"] == ("True", "Ready")
    conflict = next(each for each in status["conditions"] if each["type"] == "AliasConflict")
    assert conflict["reason"] == "AliasInUse"
    assert conflict["message"] == (
        "gpt is that of the ModelRoute older of this namespace: use other names in spec.aliases"
    )


def test_an_alias_whose_short_name_another_namespace_has() -> None:
    answered = {"modelName": "other", "aliases": [{"name": "gpt", "answers": "True"}]}
    elsewhere = with_aliases(route("front", created=9, status=answered), "gpt")
    elsewhere["metadata"]["namespace"] = "b"
    mine = with_aliases(route(), "gpt")
    status = status_of(mine, names=all_claims(elsewhere, mine))
    assert status["aliases"] == [
        {"name": "gpt", "answers": "True", "shortNameHolder": "ModelRoute b/front"}
    ]
    assert conditions(status)["AliasConflict"] == ("True", "HeldByOtherNamespace")
    assert MODEL_NAME_CONFLICT not in conditions(status)
    # Its claim keeps yielding, also when it is read from the status.
    stored = mine | {"status": status}
    assert [claim.precedence.yields_short for claim in alias_claims(stored)] == [True]


def test_the_older_route_keeps_the_name() -> None:
    other = route("other", created=5)
    assert conditions(status_of(route(), [other]))["Accepted"] == ("True", "Accepted")


def test_of_several_older_routes_the_oldest_has_the_name() -> None:
    """The others are refused too."""
    around = [route("b", created=1, status=ANSWERED), route("a", created=2, status=ANSWERED)]
    (accepted, *_) = status_of(route(created=3), around)["conditions"]
    assert accepted["message"].startswith("the ModelRoute b has the model name 'chat'")


def in_namespace(namespace: str, body: Object) -> Object:
    return body | {"metadata": body["metadata"] | {"namespace": namespace}}


def test_an_older_route_of_another_namespace_has_the_short_name() -> None:
    """The younger one is as ready as before, and says how clients reach it."""
    younger, older = route(created=5), in_namespace("b", route("front", status=ANSWERED))
    alone, status = status_of(younger), status_of(younger, [older])
    *others, conflict = status["conditions"]
    assert others == alone["conditions"]
    assert (conflict["type"], conflict["status"], conflict["reason"]) == (
        "ModelNameConflict", "True", "HeldByOtherNamespace",
    )  # fmt: skip
    assert conflict["message"] == (
        "clients reach 'chat' of this namespace as a/chat only: the name alone is that of the ModelRoute "
        "b/front, which had it first"
    )
    assert status_of(older, [younger])["conditions"] == status_of(older)["conditions"]
    assert status_of(younger | {"status": status})["conditions"] == others  # the older one is gone
    assert status["modelName"] == "chat"


@pytest.mark.parametrize(
    ("services", "stored", "expected"),
    [
        (SERVICES, {}, "chat"),
        ({}, {}, None),
        ({"old": service()}, {}, None),
        ({name: service("False") for name in SERVICES}, {}, None),
        ({}, {"modelName": "chat"}, "chat"),
        ({}, {"modelName": "former"}, None),
        (SERVICES, {"modelName": "former"}, "chat"),
    ],
)
def test_a_route_has_a_name_in_its_status_once_it_can_answer(
    services: Any, stored: Object, expected: str | None
) -> None:
    """Its backends exist, and one of them answers. It keeps the name when they are gone."""
    assert status_of(route(status=stored), services=services)["modelName"] == expected


@pytest.mark.parametrize(
    ("services", "remark"),
    [
        (SERVICES, ""),
        (
            {},
            " once its backends exist and one of them is ready; until then they go to the InferenceService "
            "chat",
        ),
    ],
)
def test_a_route_says_where_its_name_leads_until_it_can_answer(services: Any, remark: str) -> None:
    claim = NameClaim("InferenceService", "a", "chat", "chat", created_s=0)
    own = route()
    names = NameIndex((claim, route_claim(own)))
    accepted, *_ = status_of(own, services=services, names=names)["conditions"]
    assert accepted["message"] == f"requests for 'chat' follow this route{remark}"


def test_a_route_that_never_answered_has_no_name_that_another_one_can_answer_under() -> None:
    older, younger = route("older"), route("younger", created=5)
    status = status_of(younger, [older])
    assert conditions(status)["Accepted"] == ("True", "Accepted")
    taken = status_of(older, [younger | {"status": status}], services={})
    assert conditions(taken)["Accepted"] == ("False", "ModelNameInUse")


def test_a_route_that_becomes_able_to_answer_takes_the_short_name_at_once() -> None:
    """Not only after its status was written: the other one has never answered."""
    own, other = route(created=5), in_namespace("b", route("front"))
    assert MODEL_NAME_CONFLICT in conditions(status_of(own, [other], services={}))
    assert MODEL_NAME_CONFLICT not in conditions(status_of(own, [other]))


def test_one_ready_backend_of_a_rule_is_enough() -> None:
    status = status_of(route(), services=SERVICES | {"new": service("False")})
    assert conditions(status)["Ready"] == ("True", "Ready")
    assert [each["ready"] for each in status["backends"]] == ["True", "False"]


def test_times_change_with_the_conditions_status() -> None:
    before = status_of(route(), applied=None)
    for condition in before["conditions"]:
        condition["lastTransitionTime"] = "2026-01-01T00:30:00Z"
    times = {
        c["type"]: c["lastTransitionTime"] for c in status_of(route(status=before))["conditions"]
    }
    assert times["Accepted"] == "2026-01-01T00:30:00Z"
    assert times["Ready"] == times["Programmed"] == times["Reconciling"] == NOW


def test_conditions_of_other_writers_survive() -> None:
    foreign = {"type": "other.io/Seen", "status": "True", "reason": "Seen", "message": ""}
    before = {"conditions": [*status_of(route())["conditions"], foreign]}
    assert status_of(route(status=before))["conditions"] == before["conditions"]


# Words in the modules that are no reasons of a route: truth values, kinds, conditions that are not shown, and
# the reason of a service while routes are not listed.
NOT_REASONS = {"True", "False", "Unknown", "InferenceService", "TrafficAvailable", "BackendsReady"} | {
    "NamesNotListed"
}  # fmt: skip


def test_every_reason_is_documented() -> None:
    source = inspect.getsource(module) + inspect.getsource(conflicts)
    words = {MODEL_NAME_CONFLICT, *re.findall(r'"([A-Z][a-z]+(?:[A-Z][a-z]+)*)"', source)}
    assert words - NOT_REASONS == {*ROUTE_MEANINGS, *ROUTE_REASONS}
    listed = page().partition("## Conditions of a ModelRoute")[2]
    assert all(f"`{name}`" in listed for name in (*ROUTE_MEANINGS, *ROUTE_REASONS))


def test_an_external_model_as_backend() -> None:
    status = status_of(route("front", EXTERNAL), externals={"old": {}}, services={})
    assert status["backends"] == [
        {"rule": "all", "kind": "ExternalModel", "name": "old", "ready": "True"}
    ]
    assert conditions(status)["Ready"] == ("True", "Ready")


@pytest.mark.parametrize(
    ("adapters", "ready", "reason"),
    [
        ({"sql": {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}}, "True", "Ready"),
        ({"sql": {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}}, "False",
         "BackendsNotReady"),
        ({}, "Unknown", "BackendNotFound"),
    ],
)  # fmt: skip
def test_an_adapter_as_backend(adapters: dict[str, Object], ready: str, reason: str) -> None:
    status = status_of(route("front", ADAPTED), adapters=adapters, services={"sql": service()})
    assert status["backends"] == [
        {"rule": "all", "kind": "LoraAdapter", "name": "sql", "ready": ready}
    ]
    assert conditions(status)["Ready"] == (str(ready == "True"), reason)
    if not adapters:
        (resolved,) = (c for c in status["conditions"] if c["type"] == "ResolvedRefs")
        assert resolved["message"] == (
            "rule all: the namespace has no LoraAdapter sql; create it, or change the rule"
        )
