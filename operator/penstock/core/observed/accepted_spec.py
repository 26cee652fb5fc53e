"""The spec that the operator accepted last, of which the status has a copy.

The copy outlives a restart of the operator. While a later spec is refused, the service goes on with it.
"""

import json
from typing import Any

from penstock.core.formats.conditions import find_condition
from penstock.core.formats.json_text import parse_json
from penstock.core.observed.stored_status import stored_status
from penstock.core.spec.service import Object

# Field of the status with the spec that was accepted last, in JSON: a merge patch of an object would keep
# the fields that the next spec no longer has.
ACCEPTED_SPEC = "acceptedSpec"


def with_accepted_spec(body: Object) -> Object | None:
    """The service with the spec that the operator accepted last; None if the status does not say it.

    An operator without the copy said in a condition that it accepted the spec: a later one may refuse it.
    """
    status = stored_status(body)
    accepted = _decoded(status.get(ACCEPTED_SPEC))
    if accepted is not None:
        return {**body, "spec": _with_current_replicas(accepted, body["spec"])}
    is_accepted = spec_valid(status, body["metadata"].get("generation")) == "True"
    return body if is_accepted else None


def spec_in_use(body: Object) -> Object:
    """The accepted spec of a service whose own is refused, else its own. For readers of many services."""
    if not find_condition(body.get("status"), "SpecValid", "False"):
        spec: Object = body["spec"]
        return spec
    return (with_accepted_spec(body) or body)["spec"]  # type: ignore[no-any-return]


def spec_valid(status: Object, generation: int | None) -> str | None:
    """Status of the condition SpecValid; None if there is none for this generation."""
    found = find_condition(status, "SpecValid")
    return str(found["status"]) if found and found.get("observedGeneration") == generation else None


def encoded_spec(body: Object) -> str:
    """The spec of a service as text for the status."""
    return json.dumps(body["spec"], sort_keys=True, separators=(",", ":"))


def _decoded(text: Any) -> Object | None:
    try:
        spec = parse_json(text or "")
    except (TypeError, ValueError):
        return None
    return spec if isinstance(spec, dict) and isinstance(spec.get("model"), dict) else None


def _with_current_replicas(accepted: Object, current: Object) -> Object:
    """The accepted spec with the current `replicas`, which an autoscaler writes in mode External."""
    is_external = (accepted.get("scaling") or {}).get("mode") == "External"
    if not is_external or "replicas" not in current:
        return accepted
    return {**accepted, "replicas": current["replicas"]}
