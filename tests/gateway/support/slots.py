"""Slots of requests at endpoints, for tests of what happens there."""

from penstock.core.admission.engine_kind import EngineKind
from penstock.core.admission.engine_load import Waiting
from penstock.core.admission.engines import Engines
from penstock.core.admission.placement import Placement
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.gateway.admission.reservation import Reservation

ATTRIBUTES = RequestAttributes(user_key=None, conversation_key=None)


def slot_at(endpoint: Endpoint) -> Reservation:
    """A slot of a request without tokens, at an engine of its own."""
    engines, waiting = Engines(), Waiting("0", 0.0, 1.0, 0.0, 0.0, ATTRIBUTES)
    load = engines.load(endpoint.pod, EngineKind())
    return Reservation(endpoint, Placement(load, waiting, 0.0, 0.0), engines, lambda: 0.0)
