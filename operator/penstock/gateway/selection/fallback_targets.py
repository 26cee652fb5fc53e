"""The services and adapters that one request falls back to, each once."""

from dataclasses import replace

from penstock.core.providers.external_model import ExternalModel
from penstock.core.routing.apis import Api
from penstock.core.routing.fallback import choose_fallback
from penstock.core.routing.route import Backend, FallbackReason
from penstock.gateway.apis.request import InferenceRequest
from penstock.gateway.selection.routing_target import (
    FollowedRule,
    RoutingTarget,
    backend_claim,
    backend_target,
)
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.gateway.tenants.authorization import ModelAccess


class FallbackTargets:
    """The fallbacks of one request.

    followed: the rule that it follows; None: it has no fallbacks. access: what the caller may use. The right
    to a route gives none to its fallbacks. api: of the request, which an external model may not have.
    """

    def __init__(self, followed: FollowedRule | None, access: ModelAccess, api: Api) -> None:
        self._api = api
        self._followed = followed
        self._access = access
        self._tried: set[Backend] = set() if followed is None else {followed.backend}

    def find(self, snapshot: Snapshot, reason: FallbackReason) -> Backend | None:
        """Return the backend that the request goes to for a reason; None if there is none."""
        if self._followed is None:
            return None
        route = self._followed.route

        def is_usable(backend: Backend) -> bool:
            claim = backend_claim(snapshot, route, backend)
            if isinstance(claim, ExternalModel) and not claim.speaks(self._api):
                return False
            return claim is not None and self._access.allows(claim)

        found = choose_fallback(self._followed.rule.fallbacks, reason, self._tried, is_usable)
        return None if found is None else found.backend

    def take(
        self, snapshot: Snapshot, backend: Backend, request: InferenceRequest
    ) -> RoutingTarget:
        """Return the target of a backend that was found, which is not found again. Raises BackendMissing."""
        assert self._followed is not None
        self._tried.add(backend)
        return backend_target(snapshot, replace(self._followed, backend=backend), request)

    def first_byte_limit_s(self, snapshot: Snapshot, service: Service) -> float | None:
        """Time that a service has for the first byte of a stream; None: no fallback gets a late request."""
        if self._followed is None or self.find(snapshot, FallbackReason.LATE) is None:
            return None
        limit_s, objectives = self._followed.rule.first_token_s, service.objectives
        if limit_s is None and objectives is not None and objectives.has_ttft:
            return objectives.ttft_s
        return limit_s
