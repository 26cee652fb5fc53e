"""States of adapters whose service has no engine."""

from penstock.controller.adapters.states import with_zero
from penstock.core.reconcile.adapter_state import AdapterState, LoadError

STORED = LoadError("AdapterNotFound", "no such folder")
OWN = LoadError("Busy", "all in use", is_final=False)


def service(reason: str, status: str = "True") -> dict[str, object]:
    traffic = {"type": "TrafficAvailable", "status": status, "reason": reason}
    return {"status": {"conditions": [traffic]}}


def test_a_service_that_was_idle_says_why_there_is_no_engine() -> None:
    for reason in ("ScaledToZero", "Waking"):
        assert with_zero(AdapterState(), [], service(reason)) == AdapterState(at_zero=reason)


def test_what_engines_refused_before_is_kept() -> None:
    asleep = service("ScaledToZero")
    assert with_zero(AdapterState(), [STORED], asleep).failure == STORED
    assert with_zero(AdapterState(failure=OWN), [STORED], asleep).failure == OWN


def test_any_other_state_stays_as_it_is() -> None:
    for body in (service("Serving"), service("ScaledToZero", "False"), {}, None):
        assert with_zero(AdapterState(), [STORED], body) == AdapterState()
    served = AdapterState(num_engines=1)
    assert with_zero(served, [STORED], service("ScaledToZero")) == served
