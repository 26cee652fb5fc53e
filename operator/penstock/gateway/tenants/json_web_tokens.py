"""Verifies JSON Web Tokens of the OIDC issuers that Tenants name."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import jwt
from jwt.types import Options

from penstock.core.tenants.tenant import Jwt
from penstock.gateway.tenants.claim_index import ClaimIndex
from penstock.gateway.tenants.issuer_keys import IssuerKeys
from penstock.gateway.tenants.proven_identity import TokenRefusal, VerifiedToken
from penstock.gateway.tenants.signing_keys import SigningKey
from penstock.gateway.tenants.unverified_token import UnverifiedToken

# Difference between the clocks of issuer and gateway that is accepted, in seconds.
LEEWAY_S = 30.0
# Claims that a token needs. Its audiences are compared by ClaimIndex, as identities name different ones.
OPTIONS: Options = {"require": ["exp", "iss"], "verify_aud": False}

# Fetches the keys of an issuer. Arguments: the issuer, and the URL of its keys or empty.
# Raises IssuerUnavailable.
FetchKeys = Callable[[str, str], Awaitable[Mapping[str, SigningKey]]]


@dataclass(frozen=True, slots=True)
class _Source:
    """Keys of an issuer from one URL, and the identities that trust them."""

    keys: IssuerKeys
    index: ClaimIndex


class JsonWebTokens:
    """Verifies tokens of the issuers that Tenants name.

    fetch: gets the keys of an issuer. on_withdrawal: called when an issuer has withdrawn a key. now: the
    monotonic clock.
    """

    def __init__(
        self, fetch: FetchKeys, on_withdrawal: Callable[[], None], now: Callable[[], float]
    ) -> None:
        self._fetch = fetch
        self._on_withdrawal = on_withdrawal
        self._now = now
        # By issuer and URL: keys from one URL prove nothing to a Tenant that names another one
        self._keys: dict[tuple[str, str], IssuerKeys] = {}
        self._sources: dict[str, list[_Source]] = {}

    def replace(self, identities: Iterable[tuple[str, Jwt]]) -> None:
        """Set the identities, each with the name of its Tenant; those of the oldest Tenant first."""
        trusting: dict[tuple[str, str], list[tuple[str, Jwt]]] = {}
        for tenant, identity in identities:
            source = identity.issuer, identity.jwks_url
            trusting.setdefault(source, []).append((tenant, identity))
        for source in self._keys.keys() - trusting.keys():
            self._keys.pop(source).close()
        self._sources = {}
        for (issuer, url), named in trusting.items():
            if (keys := self._keys.get((issuer, url))) is None:
                keys = self._keys[issuer, url] = self._start(issuer, url)
            self._sources.setdefault(issuer, []).append(_Source(keys, ClaimIndex(named)))

    def close(self) -> None:
        """Stop fetching keys."""
        self.replace(())

    def knows(self, issuer: str) -> bool:
        """Whether a Tenant names the issuer."""
        return issuer in self._sources

    async def verify(self, token: UnverifiedToken) -> VerifiedToken | TokenRefusal:
        """Verify a token. Raises RequestError while the keys of its issuer are not available."""
        refusal = TokenRefusal.NOT_ACCEPTED
        if not token.key_id:  # with several keys, each would have to be tried
            return refusal
        for source in self._sources.get(token.issuer, ()):
            key = await source.keys.find(token.key_id)
            if key is None:
                continue
            verified = _verify(token, key, source.index)
            if isinstance(verified, VerifiedToken):
                return verified
            refusal = verified
        return refusal

    def _start(self, issuer: str, url: str) -> IssuerKeys:
        return IssuerKeys(issuer, lambda: self._fetch(issuer, url), self._on_withdrawal, self._now)


def _verify(
    token: UnverifiedToken, key: SigningKey, index: ClaimIndex
) -> VerifiedToken | TokenRefusal:
    """Check signature, issuer and times of a token, and find the identity that its claims prove."""
    try:
        claims = jwt.decode(
            token.text,
            key.key,
            algorithms=key.algorithms,
            issuer=token.issuer,
            leeway=LEEWAY_S,
            options=OPTIONS,
        )
    except jwt.ExpiredSignatureError:
        return TokenRefusal.EXPIRED
    except jwt.ImmatureSignatureError:
        return TokenRefusal.NOT_YET_VALID
    except (jwt.PyJWTError, ValueError, RecursionError):
        return TokenRefusal.NOT_ACCEPTED
    identity = index.find(claims)
    if identity is None:
        return TokenRefusal.NO_IDENTITY
    return VerifiedToken(identity, int(claims["exp"]) + LEEWAY_S)
