"""Chooses the spec that a service is reconciled by: its own, or an earlier one while that is refused."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.api.conversion.convert import InvalidService, parse_service, to_core
from penstock.api.conversion.past_specs import with_recorded_fields
from penstock.clients.kubernetes.client import Object
from penstock.core.manifests.allowed_pods import PodLimits, is_of_running_revision
from penstock.core.observed.accepted_spec import with_accepted_spec
from penstock.core.observed.children import ObservedState
from penstock.core.spec.refusal import Refusal
from penstock.core.spec.revision import revision_of
from penstock.core.spec.service import ServiceSpec


@dataclass(frozen=True, slots=True)
class Accepted:
    """The spec to reconcile a service by.

    body: the service with this spec. violation: the limit that the spec exceeds, although its revision runs
    and is kept; else empty. refusal: of the service's own spec, if this is an earlier one.
    """

    body: Object
    spec: ServiceSpec
    violation: str = ""
    refusal: Refusal | None = None

    def with_fetch_settings(
        self, variables: Mapping[str, str], node_cache_path: str | None
    ) -> "Accepted":
        """The same with the operator's settings for containers that fetch models, as in ServiceSpec."""
        spec = replace(self.spec, source_variables=variables, node_cache_path=node_cache_path)
        return replace(self, spec=spec)


def choose_spec(
    body: Object,
    spec: ServiceSpec,
    refusal: Refusal | None,
    observed: ObservedState,
    limits: PodLimits,
) -> Accepted | Refusal:
    """Choose the spec to reconcile a service by.

    spec: the service's own. refusal: of that spec, if it is invalid. limits: on pods. Returns the refusal if
    no earlier spec is known.
    """
    if refusal is None:
        own = _within_limits(body, spec, observed, limits)
        if isinstance(own, Accepted):
            return own
        refusal = own
    for earlier in _earlier_specs(body, observed):
        found = _within_limits(*earlier, observed, limits)
        if isinstance(found, Accepted):
            return replace(found, refusal=refusal)
    return refusal


def _within_limits(
    body: Object, spec: ServiceSpec, observed: ObservedState, limits: PodLimits
) -> Accepted | Refusal:
    violation = limits.violation(spec)
    if violation is None:
        return Accepted(body, spec)
    if is_of_running_revision(spec, observed):
        return Accepted(body, spec, violation.message)
    return Refusal(violation.reason, violation.message)


def _earlier_specs(body: Object, observed: ObservedState) -> Iterator[tuple[Object, ServiceSpec]]:
    """Yield the spec that was accepted last, then those of the revisions that run.

    The latter are for a status without a copy of the accepted spec, and for limits that changed since.
    """
    accepted = with_accepted_spec(body)
    if accepted is not None:
        with suppress(InvalidService):
            yield accepted, parse_service(accepted)
    rollout = observed.rollout
    recorded = {entry.revision: entry.recorded_fields for entry in observed.history}
    for revision in (rollout.revision, rollout.stable) if rollout else ():
        if revision is not None and revision in recorded:
            earlier = with_recorded_fields(accepted or body, recorded[revision])
            with suppress(InvalidService):
                spec = to_core(earlier)
                # Another version of Penstock may interpret the same fields differently.
                if revision_of(spec) == revision:
                    yield earlier, spec
