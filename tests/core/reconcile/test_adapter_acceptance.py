"""Whether a service takes an adapter, and who has the adapter's model name."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.core.reconcile.adapter_objects import LATER, NOW, SQL, adapter

from penstock.core.observed.name_claims import (
    Standing,
    adapter_claim,
    route_claim,
    service_claim,
    with_next_status,
)
from penstock.core.observed.name_index import NameIndex
from penstock.core.reconcile.adapter_acceptance import adapters_of_routes, refusal, settle_name
from penstock.core.spec.service import Object


def service(name: str = "chat", model: str | None = None, **spec: Any) -> Object:
    source = {"uri": "pvc://m"} | ({"name": model} if model else {})
    engine = {"engine": {"lora": {"maxAdapters": 4}}}
    return {
        "metadata": {"namespace": "team", "name": name, "creationTimestamp": NOW},
        "spec": {"model": source} | engine | spec,
    }


def route(model: str, backend: str = "any") -> Object:
    rule = {"name": "all", "backendRefs": [{"kind": "LoraAdapter", "name": backend}]}
    metadata = {"namespace": "team", "name": "front", "creationTimestamp": NOW}
    return {"metadata": metadata, "spec": {"modelName": model, "rules": [rule]}}


def names_of(
    *adapters: Object, services: Iterable[Object] = (), routes: Iterable[Object] = ()
) -> NameIndex:
    found = *map(service_claim, services), *map(route_claim, routes), *map(adapter_claim, adapters)
    return NameIndex(claim for claim in found if claim is not None)


def test_adapters_stay_while_a_rollout_removes_the_engines_that_take_them() -> None:
    for body in (service(engine={}), service(runtime={"type": "Custom"})):
        assert refusal(SQL, body, (), {}, has_engines=True) is None
    unmounted = refusal(SQL, service(), ("pvc://other",), {}, has_engines=True)
    assert unmounted is not None
    assert unmounted.reason == "SourceNotMounted"


def test_why_a_service_takes_no_adapter() -> None:
    def reason(body: Object | None) -> str | None:
        cause = refusal(SQL, body, ("pvc://adapters",), NameIndex())
        return cause and cause.reason

    assert reason(service()) is None
    assert reason(None) == "ServiceNotFound"
    assert reason(service(engine={})) == "LoraNotEnabled"
    assert reason(service(runtime={"type": "VLLM"})) is None
    assert reason(service(runtime={"type": "Custom"})) == "RuntimeUnsupported"
    for sources, expected in ((("pvc://other",), "SourceNotMounted"), (None, None)):
        cause = refusal(SQL, service(), sources, NameIndex())
        assert (cause and cause.reason) == expected


def test_a_fetched_adapter_needs_the_cache_of_its_service() -> None:
    hub = replace(SQL, version=replace(SQL.version, uri="hf://org/sql"))
    cause = refusal(hub, service(), ("pvc://adapters",), NameIndex())
    assert cause is not None
    assert cause.reason == "CacheRequired"
    assert cause.message.endswith("to a claim that its engines can share")
    with_node_cache = service() | {
        "spec": service()["spec"] | {"model": {"cache": {"type": "Node"}}}
    }
    of_nodes = refusal(hub, with_node_cache, (), NameIndex())
    assert of_nodes is not None
    assert of_nodes.reason == "CacheRequired"
    assert of_nodes.message == (
        "chat has no cache for hf://org/sql: set spec.model.cache.claimName of the service to a claim that "
        "its engines can share in place of spec.model.cache.type Node, as caches of nodes have no adapters"
    )
    assert refusal(hub, service(), (), NameIndex(), has_cache=True) is None
    assert refusal(hub, service(), None, NameIndex()) is None
    unmounted = refusal(SQL, service(), (), NameIndex(), has_cache=True)
    assert unmounted is not None
    assert unmounted.reason == "SourceNotMounted"


def test_a_service_that_goes_on_with_its_accepted_spec_takes_the_adapter() -> None:
    refused = {"type": "SpecValid", "status": "False", "reason": "InvalidSpec"}
    status = {"conditions": [refused], "acceptedSpec": json.dumps(service()["spec"])}
    body = service(engine={}, runtime={"type": "Custom"}) | {"status": status}
    assert refusal(SQL, body, None, NameIndex()) is None


def test_who_has_a_model_name() -> None:
    sql, younger = adapter("sql"), adapter("b", created=LATER)
    serving = service("x", "chat-sql") | {"status": {"stableRevision": "r"}}

    def holder(routes: list[Object], services: list[Object]) -> str | None:
        names = names_of(sql, younger, services=services, routes=routes)
        cause = refusal(replace(SQL, name="b"), service(), None, names)
        return cause and cause.message.partition(" has the")[0]

    assert holder([], []) == "the LoraAdapter sql"
    assert holder([], [serving]) == "the InferenceService x"
    assert holder([route("chat-sql")], [serving]) == "the InferenceService x"
    answered = route("chat-sql") | {"status": {"modelName": "chat-sql"}}
    assert holder([answered], [serving]) == "the ModelRoute front"
    names = names_of(sql, younger, routes=[route("y")])
    assert refusal(SQL, service(), None, names) is None


def test_a_service_that_never_answered_takes_no_name_of_an_adapter() -> None:
    accepted = adapter("sql", modelName="chat-sql", stableRevision="r")
    names = names_of(accepted, services=[service("x", "chat-sql")])
    assert refusal(SQL, service(), None, names) is None


def test_an_adapter_that_is_refused_takes_no_name_of_another() -> None:
    condition = {"type": "Accepted", "status": "False", "reason": "ServiceNotFound"}
    older, younger = adapter("a", conditions=[condition]), adapter("sql", created=LATER)
    assert refusal(SQL, service(), None, names_of(older, younger)) is None


def test_an_adapter_that_a_route_leads_to_needs_no_model_name() -> None:
    """A ModelRoute with the adapter's own name, as for a gradual change, leaves its copies alone."""
    own = route("chat-sql", backend="sql")
    names = names_of(adapter("sql"), routes=[own])
    routed = adapters_of_routes([own], names)
    assert routed == {SQL.key}
    assert refusal(SQL, service(), None, names, is_routed=True) is None
    (cause,) = [refusal(SQL, service(), None, names)]
    assert cause is not None
    assert cause.reason == "ModelNameInUse"
    taken = {"type": "Accepted", "status": "False", "reason": "ModelNameInUse"}
    refused = own | {"status": {"conditions": [taken]}}
    assert adapters_of_routes([refused], names_of(routes=[refused])) == set()


@pytest.mark.parametrize(("is_read", "holder"), [(False, "other"), (True, "team")])
def test_an_adapter_that_no_engine_has_read_takes_no_short_name(is_read: bool, holder: str) -> None:
    """The older service of another namespace loads its model."""
    waiting = service("x", "chat-sql")
    waiting["metadata"] |= {"namespace": "other"}
    names = names_of(adapter("sql", created=LATER), services=[waiting])
    conflict = settle_name(SQL.key, None, names, can_answer=is_read)
    assert bool(conflict) == (holder == "other")
    claim = service_claim(waiting)
    assert claim is not None
    answering = with_next_status(claim, "chat-sql", Standing.ESTABLISHED)
    assert (names.settle(answering, yields=False) == "") == (holder == "other")
