"""Lines of batches: the batch server sends them on behalf of their tenants, with a shared token."""

import hmac
from collections.abc import Sequence

from penstock.core.batches.shared_token import TENANT_HEADER, SharedToken
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.tenants.caller import Caller
from penstock.gateway.tenants.credentials import read_credential
from penstock.gateway.tenants.tenant_set import TenantSet

HEADER = TENANT_HEADER.encode()
# Name of the identity of lines, in logs.
IDENTITY = "batch"


class BatchLines:
    """Finds the callers of lines. token: that gateways and the batch server share."""

    def __init__(self, token: SharedToken) -> None:
        self._token = token

    def find_caller(
        self, headers: Sequence[tuple[bytes, bytes]], tenants: TenantSet, *, is_open: bool
    ) -> Caller | None:
        """The caller of a line; None if the request is none, whose header of a tenant has no meaning.

        Raises RequestError if the tenant does not exist.
        """
        name = next((value for header, value in headers if header == HEADER), None)
        if name is None:
            return None
        credential = read_credential(headers)
        if credential is None or not hmac.compare_digest(credential.encode(), self._token.value):
            return None
        if not name and is_open:
            return Caller(identity=IDENTITY, is_batch=True)
        tenant = tenants.by_name.get(name.decode("latin-1"))
        if tenant is None:
            message = "the tenant of the batch does not exist"
            raise RequestError(401, message, reason="credentials_invalid")
        return Caller(tenant, IDENTITY, is_batch=True)
