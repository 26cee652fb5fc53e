"""Specs that a service had before its current one: of its revisions, and the last that was accepted.

The operator keeps a copy of the spec that it accepted last in the status, which outlives a restart. While a
later spec is refused, it reconciles, scales and judges by that copy.
"""

import json
from typing import Any

from penstock.api.convert import InvalidService, parse_service
from penstock.core.observed.stored_status import stored_status
from penstock.core.spec.fields import RECORDED
from penstock.core.spec.service import Object, ServiceSpec

# Field of the status with the spec that was accepted last, in JSON: a merge patch of an object would keep
# the fields that the next spec no longer has.
ACCEPTED_SPEC = "acceptedSpec"


def accepted_spec(body: Object) -> ServiceSpec | None:
    """The spec that the operator accepted last, else the service's own; None if that is invalid.

    It may have settings that this version refuses: what runs has them.
    """
    try:
        return parse_service(with_accepted_spec(body) or body)
    except InvalidService:
        return None


def with_accepted_spec(body: Object) -> Object | None:
    """The service with the spec that the operator accepted last; None if the status does not say it.

    An operator without the copy said in a condition that it accepted the spec: a later one may refuse it.
    """
    status = stored_status(body)
    accepted = _decoded(status.get(ACCEPTED_SPEC))
    if accepted is not None:
        return {**body, "spec": _with_current_replicas(accepted, body["spec"])}
    return body if _was_valid(status, body["metadata"]["generation"]) else None


def encoded_spec(body: Object) -> str:
    """The spec of a service as text for the status."""
    return json.dumps(body["spec"], sort_keys=True, separators=(",", ":"))


def _decoded(text: Any) -> Object | None:
    try:
        spec = json.loads(text or "")
    except (TypeError, ValueError):
        return None
    return spec if isinstance(spec, dict) and isinstance(spec.get("model"), dict) else None


def _with_current_replicas(accepted: Object, current: Object) -> Object:
    """The accepted spec with the current `replicas`, which an autoscaler writes in mode External."""
    is_external = (accepted.get("scaling") or {}).get("mode") == "External"
    if not is_external or "replicas" not in current:
        return accepted
    return {**accepted, "replicas": current["replicas"]}


def _was_valid(status: Object, generation: int) -> bool:
    """Whether the condition SpecValid is True for this generation."""
    return any(
        condition.get("type") == "SpecValid"
        and condition.get("status") == "True"
        and condition.get("observedGeneration") == generation
        for condition in status.get("conditions", [])
    )


def with_recorded_fields(body: Object, recorded: Object) -> Object:
    """The service with the recorded fields of a revision, and all others of its spec."""
    rest = {name: value for name, value in body["spec"].items() if name not in RECORDED}
    return {**body, "spec": rest | _valid_in_any_mode(recorded)}


def spec_of_revision(body: Object, recorded: Object) -> ServiceSpec | None:
    """The spec of a revision, as `with_recorded_fields`; None if the record is invalid."""
    try:
        return parse_service(with_recorded_fields(body, recorded))
    except InvalidService:
        return None


def _valid_in_any_mode(recorded: Object) -> Object:
    """The recorded fields, with metrics of a custom runtime, which only scaling mode External may lack.

    The mode may have changed since they were recorded. Metrics change neither the pods nor the revision.
    """
    runtime = recorded.get("runtime") or {}
    if "custom" not in runtime:
        return recorded
    custom = {"metrics": {"dialect": "VLLM"}, **runtime["custom"]}
    return {**recorded, "runtime": {**runtime, "custom": custom}}
