"""When a gateway is open, when it is closed, and when it knows neither."""

from dataclasses import dataclass, field

import pytest

from penstock.core.tenants.tenant import ApiKeys, Tenant
from penstock.gateway.tenants.tenant_registry import TenantRegistry
from penstock.gateway.tenants.tenant_set import TenantSet


@dataclass
class Listed:
    """What an informer knows. confirmed_s: when the API server confirmed it."""

    bodies: list = field(default_factory=list)
    is_absent: bool = False
    is_denied: bool = False
    confirmed_s: float = 0.0

    def __iter__(self):
        return iter(self.bodies)


def body(name, created="2026-01-01T00:00:00Z", **spec):
    metadata = {"name": name, "creationTimestamp": created, "generation": 1, "uid": name}
    return {"metadata": metadata, "spec": spec}


@pytest.fixture
def registry():
    return TenantRegistry(now=lambda: 0.0)


def state(registry):
    """None: unknown. True: open. Else the names of the tenants."""
    found = registry.current
    return None if found is None else found.is_open or [each.name for each in found.tenants]


def after(registry, *steps):
    """The states after each step."""
    found = []
    for step in steps:
        registry.update(step)
        found.append(state(registry))
    return found


SOME, NONE = Listed([body("a")]), Listed()
NO_KIND = Listed(is_absent=True, confirmed_s=1000.0)
DENIED = Listed(is_absent=True, is_denied=True, confirmed_s=1000.0)


@pytest.mark.parametrize(
    ("steps", "states"),
    [
        ([Listed()], [True]),
        ([Listed(), SOME], [True, ["a"]]),
        # Deleting the last Tenant opens the gateway, once the API server has confirmed it for some time
        ([SOME, NONE, Listed(confirmed_s=9.9), Listed(confirmed_s=10.0)], [["a"], [], [], True]),
        ([SOME, NONE, SOME, Listed(confirmed_s=9.9)], [["a"], [], ["a"], []]),
        # Deleting the CRD does not
        ([SOME, NONE, NO_KIND, NO_KIND], [["a"], [], [], []]),
        ([SOME, NO_KIND], [["a"], ["a"]]),
        # The kind is unknown to an API server that starts
        (
            [Listed(is_absent=True), Listed(is_absent=True, confirmed_s=9.9), SOME],
            [None, None, ["a"]],
        ),
        ([Listed(is_absent=True), Listed(is_absent=True, confirmed_s=10.0)], [None, True]),
        # A right that is missing opens nothing
        ([DENIED, DENIED], [None, None]),
        ([SOME, DENIED], [["a"], ["a"]]),
        ([DENIED, Listed()], [None, True]),
    ],
)  # fmt: skip
def test_states(registry, steps, states):
    assert after(registry, *steps) == states


def test_the_oldest_tenant_has_an_identity_of_two(registry):
    identities = [{"name": "keys", "type": "APIKey", "apiKey": {"secretName": "shared"}}]
    young = body("a", "2026-01-02T00:00:00Z", identities=identities)
    registry.update(Listed([young, body("b", identities=identities), body("c")]))
    assert [each.name for each in registry.current.tenants] == ["b", "c", "a"]
    tenant, identity = registry.current.by_secret["shared"]
    assert (tenant.name, identity) == ("b", "keys")


def test_a_tenant_that_cannot_be_read_stays_as_it_was_or_may_do_nothing(registry):
    access = [{"namespace": "n"}]
    registry.update(Listed([body("a", access=access)]))
    broken = body(
        "a", access=access, limits=[{"name": "x", "resource": "Cats", "limit": 1, "unit": "Day"}]
    )
    registry.update(Listed([broken]))
    assert registry.current.by_name["a"].may_use("n", "m", "/v1/chat/completions")
    new = TenantRegistry()
    new.update(Listed([broken]))
    assert not new.current.is_open
    assert not new.current.by_name["a"].may_list("n", "m")


def test_listeners_hear_of_changes_alone(registry):
    heard = []
    registry.listeners.append(heard.append)
    same = Listed([body("a")])
    after(registry, same, same)
    assert len(heard) == 1
    assert heard[0] == TenantSet((registry.current.by_name["a"],))


def test_a_secret_of_nobody_is_of_no_tenant():
    tenants = TenantSet((Tenant("a", 1, (ApiKeys("keys", "mine"),)),))
    assert tenants.by_secret.keys() == {"mine"}
