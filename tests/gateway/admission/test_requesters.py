"""Whom a request counts for, from its caller and its body."""

import json

import pytest

from penstock.core.admission.requester import ANYBODY, Requester
from penstock.core.routing.apis import APIS
from penstock.core.tenants.tenant import BATCH_PRIORITY, Tenant
from penstock.gateway.admission.requesters import owner_of, requester_of
from penstock.gateway.apis.request import parse
from penstock.gateway.tenants.caller import ANYONE, Caller

TENANT = Tenant(
    "team-a", 1, priority=7, fair_share_weight=3, max_queued=20, queue_timeout_s=2.5
)  # fmt: skip


@pytest.mark.parametrize(
    ("caller", "is_flex", "expected"),
    [
        (ANYONE, False, ANYBODY),
        (ANYONE, True, Requester(priority=BATCH_PRIORITY)),
        (Caller(TENANT), False, Requester("team-a", 7, 3, 20, 2.5)),
        (Caller(TENANT), True, Requester("team-a", BATCH_PRIORITY, 3, 20, 2.5)),
        (Caller(TENANT, is_batch=True), False, Requester("team-a", BATCH_PRIORITY, 3, 20, 2.5)),
        (Caller(is_batch=True), False, Requester(priority=BATCH_PRIORITY)),
    ],
)
def test_requester_of_a_caller(caller, is_flex, expected):
    assert requester_of(caller, is_flex=is_flex) == expected


def test_a_tenant_owns_what_its_requests_hold_in_place_of_the_namespace():
    assert owner_of(ANYONE, "default/chat") == "default/chat"
    assert owner_of(Caller(TENANT), "default/chat") == "@team-a/default/chat"


@pytest.mark.parametrize(
    ("tier", "is_flex"),
    [("flex", True), ("auto", False), ("priority", False), (None, False), (["flex"], False)],
)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.path)
def test_the_service_tier_flex_is_the_class_of_batches(api, tier, is_flex):
    body = json.dumps({"model": "m", "service_tier": tier}).encode()
    assert parse(body, api).is_flex is is_flex
