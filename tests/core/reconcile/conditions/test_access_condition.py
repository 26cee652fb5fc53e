"""The condition that tells whether only tenants may use a service."""

from dataclasses import replace

import pytest
from tests.core.reconcile.one_revision import NOW_S, SPEC, observed_in

from penstock.core.reconcile.condition_types import ACCESS_CONTROLLED, Condition
from penstock.core.reconcile.conditions import conditions
from penstock.core.reconcile.plan import plan
from penstock.core.reconcile.status import as_objects
from penstock.core.tenants.access_counts import AccessCounts
from penstock.core.tenants.tenant import Access, Tenant

NAMES = frozenset({SPEC.model_name})
MAY = Tenant("may", 1, access=(Access(SPEC.namespace, NAMES),))
OTHER = Tenant("other", 1, access=(Access("elsewhere"),))


def found(access: AccessCounts | None) -> dict[str, Condition]:
    observed = replace(observed_in(), access=access)
    planned = plan(SPEC, observed, "image", NOW_S)
    return {each.type: each for each in conditions(SPEC, observed, planned, None)}


@pytest.mark.parametrize(
    ("tenants", "status", "reason", "beginning"),
    [
        ([], "False", "NoTenants", "the cluster has no Tenant: "),
        ([OTHER], "True", "Tenants", f"0 tenants may use the model name {SPEC.model_name!r}"),
        ([MAY, OTHER], "True", "Tenants", f"1 tenant may use the model name {SPEC.model_name!r}"),
    ],
)
def test_the_number_of_tenants_is_told(
    tenants: list[Tenant], status: str, reason: str, beginning: str
) -> None:
    condition = found(AccessCounts(tenants))[ACCESS_CONTROLLED]
    assert (condition.status, condition.reason) == (status, reason)
    assert condition.message.startswith(beginning)


def test_the_service_is_as_ready_as_without_tenants() -> None:
    unknown = found(None)
    assert ACCESS_CONTROLLED not in unknown
    assert found(AccessCounts([]))["Ready"] == unknown["Ready"]


def test_the_condition_stays_until_the_tenants_are_known() -> None:
    known = tuple(found(AccessCounts([MAY])).values())
    before = {"conditions": as_objects(known, {}, 1, "then")}
    assert as_objects(tuple(found(None).values()), before, 1, "now") == before["conditions"]
