"""Finds the engine that has stored a response, by the response's id."""

from dataclasses import dataclass

from penstock.core.routing.pick import Endpoint
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.apis.response_id import key_of, pod_key
from penstock.gateway.snapshots.snapshot import Service, Snapshot


@dataclass(frozen=True, slots=True)
class ResponseOwner:
    """The engine pod that has a response. service: "namespace/name"."""

    service: str
    pod: str
    response_id: str

    def endpoint(self, service: Service) -> Endpoint:
        """Return the pod's endpoint. Raises RequestError if it is not ready, or gone."""
        for endpoint in service.endpoints:
            if endpoint.pod == self.pod:
                return endpoint
        if self.pod not in service.sides:
            raise not_found(self.response_id)
        message = f"the engine that has the response `{self.response_id}` is not ready"
        raise RequestError(503, message, retry_after_s=RETRY_AFTER_S)


class ResponseOwners:
    """The pods of a snapshot by their keys, which are computed with a tenant's first use of the snapshot."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._by_tenant: dict[str, dict[str, tuple[str, str]]] = {}

    def find(
        self, snapshot: Snapshot, response_id: str, tenant: str, *, param: str = "response_id"
    ) -> ResponseOwner:
        """Return the owner of a response. Raises RequestError if no pod has the id's key for this tenant.

        tenant: name of the one that asks; empty while the gateway is open. param: the name under which the
        client has sent the id.
        """
        if snapshot is not self._snapshot:
            self._snapshot, self._by_tenant = snapshot, {}
        by_key = self._by_tenant.get(tenant)
        if by_key is None:
            by_key = self._by_tenant[tenant] = {
                pod_key(pod, tenant): (service.key, pod)
                for service in snapshot.services
                for pod in {*service.sides, *(endpoint.pod for endpoint in service.endpoints)}
            }
        found = by_key.get(key_of(response_id) or "")
        if found is None:
            raise not_found(response_id, param)
        return ResponseOwner(*found, response_id)


def not_found(response_id: str, param: str = "response_id") -> RequestError:
    """The error for a response that no engine has."""
    message = (
        f"the response `{response_id[:128]}` does not exist: its id is wrong, or it was lost with the engine "
        "that stored it"
    )
    return RequestError(404, message, param=param, code="response_not_found")
