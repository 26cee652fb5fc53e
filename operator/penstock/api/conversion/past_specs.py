"""Specs that a service had before its current one: of its revisions, and the last that was accepted."""

from penstock.api.conversion.convert import InvalidService, parse_service
from penstock.core.observed.accepted_spec import with_accepted_spec
from penstock.core.spec.fields import RECORDED
from penstock.core.spec.service import Object, ServiceSpec


def parse_accepted_spec(body: Object) -> ServiceSpec:
    """The spec that the operator accepted last, else the service's own. Raises InvalidService.

    It may have settings that this version refuses: what runs has them.
    """
    return parse_service(with_accepted_spec(body) or body)


def accepted_spec(body: Object) -> ServiceSpec | None:
    """The spec of `parse_accepted_spec`; None if it is invalid."""
    try:
        return parse_accepted_spec(body)
    except InvalidService:
        return None


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
