"""Finds the caller of a request by what the request proves. Without a proof nobody is let in."""

import asyncio
from collections.abc import Callable, Sequence

from penstock.clients.kubernetes.client import Kube
from penstock.clients.machine.clock import unix_time
from penstock.core.routing.forwarded_client import Network
from penstock.core.tenants.api_key import NO_KEY, PREFIX, parse_api_key
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.tenants.api_key_index import ApiKeyIndex, IndexedKey
from penstock.gateway.tenants.batch_lines import BatchLines
from penstock.gateway.tenants.bearer_tokens import BearerTokens
from penstock.gateway.tenants.caller import ANYONE, Caller
from penstock.gateway.tenants.credentials import read_credential
from penstock.gateway.tenants.proven_identity import ProvenIdentity, TokenRefusal
from penstock.gateway.tenants.proxy_identity import ProxyIdentities
from penstock.gateway.tenants.tenant_registry import TenantRegistry
from penstock.gateway.tenants.tenant_set import TenantSet

# OpenAI's code, whatever a request lacks: the reason is for metrics and logs alone.
ERROR_CODE = "invalid_api_key"
HEADERS = "`Authorization: Bearer KEY` or `x-api-key: KEY`"
MISSING = f"this gateway has tenants: send an API key of one, as the header {HEADERS}"
INVALID = (
    "the API key or the token is not valid: it is wrong, has expired or was revoked; send one that a tenant "
    f"has, as the header {HEADERS}"
)


class Authenticator:
    """Decides who sends a request.

    tokens: verifies bearer tokens that are no API keys. trusted_proxies: networks of proxies that may name a
    tenant in a header. require_tenants: whether nobody is let in while there is none.
    """

    def __init__(
        self,
        tokens: BearerTokens,
        trusted_proxies: tuple[Network, ...] = (),
        *,
        require_tenants: bool = False,
        unix_now: Callable[[], float] = unix_time,
    ) -> None:
        self.tenants = TenantRegistry()
        self.keys = ApiKeyIndex()
        self.tokens = tokens
        self.proxies = ProxyIdentities(trusted_proxies)
        self.tenants.listeners.append(self._replace_identities)
        self.batch_lines: BatchLines | None = None  # None: there is no batch server
        self._require_tenants = require_tenants
        self._unix_now = unix_now

    @property
    def is_open(self) -> bool:
        """Whether anybody is let in, as the cluster has no Tenant."""
        tenants = self.tenants.current
        return tenants is not None and tenants.is_open and not self._require_tenants

    @property
    def is_synced(self) -> bool:
        """Whether tenants are known, and API keys if a tenant has some."""
        tenants = self.tenants.current
        return tenants is not None and (self.keys.current is not None or not tenants.by_secret)

    async def follow(
        self, kube: Kube, keys_namespace: str, restarted: Callable[[str], None] = lambda _: None
    ) -> None:
        """Watch tenants and API keys until cancelled.

        restarted: called with a kind each time that it is listed again.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.tenants.follow(kube, restarted))
            group.create_task(self.keys.follow(kube, keys_namespace, restarted))

    async def authenticate(
        self, headers: Sequence[tuple[bytes, bytes]], peer: str, client: str
    ) -> Caller:
        """Find the caller of a request. Raises RequestError.

        headers: as they came, with names in lower case. peer: address of the other end of the connection.
        client: address of the client, which the peer may only be a proxy of; empty if unknown.
        """
        tenants = self.tenants.current
        if tenants is None:
            raise _not_synced("the tenants")
        caller: Caller | None = None
        if self.batch_lines is not None:
            caller = self.batch_lines.find_caller(headers, tenants, is_open=self.is_open)
        if caller is None and self.is_open:
            return ANYONE
        if caller is None:
            caller = await self._identify(headers, peer, client, tenants)
        return caller

    async def _identify(
        self,
        headers: Sequence[tuple[bytes, bytes]],
        peer: str,
        client: str,
        tenants: TenantSet,
    ) -> Caller:
        """The caller by what the request proves: a key or a token, and without both a forwarded header."""
        credential = read_credential(headers)
        if credential is None:
            proven = self.proxies.find(peer, headers)
            if proven is None:
                raise RequestError(401, MISSING, code=ERROR_CODE, reason="credentials_missing")
            return self._caller(proven)
        if credential.startswith(PREFIX):
            return self._find_by_key(credential, tenants)
        return await self._find_by_token(credential.encode("latin-1"), client)

    def _find_by_key(self, credential: str, tenants: TenantSet) -> Caller:
        """The caller that has an API key. All refusals compare one hash and say the same."""
        index = self.keys.current
        if index is None:
            raise _not_synced("the API keys")
        key = parse_api_key(credential)
        found = UNKNOWN_KEY if key is None else index.get(key.id, UNKNOWN_KEY)
        is_right = found.matches("" if key is None else key.secret)
        owner = tenants.by_secret.get(found.secret)
        if key is None or not is_right or owner is None:
            raise RequestError(401, INVALID, code=ERROR_CODE, reason="credentials_invalid")
        if found.expires_s <= self._unix_now():
            raise RequestError(401, INVALID, code=ERROR_CODE, reason="credentials_expired")
        tenant, identity = owner
        return Caller(tenant, identity, key.id)

    async def _find_by_token(self, token: bytes, client: str) -> Caller:
        """The caller that has a token which is no API key."""
        proven = self.tokens.find_remembered(token) or await self.tokens.verify(token, client)
        if isinstance(proven, ProvenIdentity):
            return self._caller(proven)
        message = INVALID
        if proven is not TokenRefusal.MALFORMED:
            message = f"the token {proven.value}"
        reason = "expired" if proven is TokenRefusal.EXPIRED else "invalid"
        raise RequestError(401, message, code=ERROR_CODE, reason=f"credentials_{reason}")

    def _caller(self, proven: ProvenIdentity) -> Caller:
        """The caller of an identity. Its Tenant may have been deleted while a token was verified."""
        tenant = (
            None
            if self.tenants.current is None
            else self.tenants.current.by_name.get(proven.tenant)
        )
        if tenant is None:
            raise RequestError(401, INVALID, code=ERROR_CODE, reason="credentials_invalid")
        return Caller(tenant, proven.name)

    def _replace_identities(self, tenants: TenantSet) -> None:
        self.tokens.replace(tenants.tenants)
        self.proxies.replace(tenants.tenants)


UNKNOWN_KEY = IndexedKey(NO_KEY.digest, NO_KEY.expires_s)


def _not_synced(what: str) -> RequestError:
    message = f"{what} are not known yet"
    return RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="not_synced")
