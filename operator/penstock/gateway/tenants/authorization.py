"""Rights of the caller of a request. A model that it may not use does not exist for it."""

from dataclasses import dataclass

from penstock.core.providers.external_model import ExternalModel
from penstock.core.tenants.tenant import Tenant
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.snapshots.snapshot import Claim
from penstock.gateway.tenants.caller import Caller


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """The models that a tenant may use on an API route.

    tenant: None: all models, as the gateway is open. api_path: empty: on any route.
    """

    tenant: Tenant | None = None
    api_path: str = ""

    def allows(self, claim: Claim | ExternalModel) -> bool:
        """Whether the tenant may use what answers to a model name."""
        if self.tenant is None:
            return True
        if not self.api_path:
            return self.tenant.may_list(claim.namespace, claim.served_name)
        return self.tenant.may_use(claim.namespace, claim.served_name, self.api_path)


def check_suspension(caller: Caller) -> None:
    """Raise RequestError if the caller's tenant is suspended."""
    tenant = caller.tenant
    if tenant is not None and tenant.is_suspended:
        message = f"the tenant {tenant.name} is suspended: its spec.suspend has to be Never"
        raise RequestError(403, message, code="tenant_suspended")


def check_route(caller: Caller, api_path: str) -> None:
    """Raise RequestError if the caller may send no request to an API route."""
    tenant = caller.tenant
    if tenant is not None and not tenant.may_call(api_path):
        message = (
            f"the tenant {tenant.name} has no access to {api_path}: an entry of its spec.access has to allow "
            "this route"
        )
        raise RequestError(403, message, code="route_not_allowed")


def max_body_bytes(caller: Caller, limit_bytes: int) -> int:
    """The bound on the body of a request: the gateway's, or the tenant's if that is lower."""
    own = None if caller.tenant is None else caller.tenant.request.body_bytes
    return limit_bytes if own is None else min(own, limit_bytes)
