"""Tenants, keys and callers of a gateway."""

from dataclasses import replace
from functools import cache
from typing import Any

from penstock.core.tenants.api_key import ID_BYTES, SECRET_BYTES, ApiKey, make_api_key, store_key
from penstock.core.tenants.tenant import Access, ApiKeys, Tenant
from penstock.gateway.app import Gateway
from penstock.gateway.tenants.api_key_index import IndexedKey

PAST_S = 1_000.0


@cache
def api_key(number: int) -> ApiKey:
    """A key that is the same in each call."""
    return make_api_key(bytes([number] * (ID_BYTES + SECRET_BYTES)))


def tenant(name: str, *access: Access, **fields: Any) -> Tenant:
    """A tenant whose keys are in the Secret of its name."""
    return replace(Tenant(name, 1, (ApiKeys("keys", name),), access), **fields)


def let_in(
    gateway: Gateway,
    *tenants: Tenant,
    keys: dict[str, ApiKey],
    expired: dict[str, ApiKey] | None = None,
) -> None:
    """Give a gateway tenants, and keys by the names of their Secrets."""
    indexed = {}
    for expires_s, given in ((float("inf"), keys), (PAST_S, expired or {})):
        for secret, key in given.items():
            stored = store_key(key, bytes(16), "test", 0.0, expires_s).hash
            indexed[key.id] = IndexedKey(stored.digest, stored.expires_s, secret)
    authenticator = gateway.state.authenticator
    authenticator.keys.publish(indexed)
    authenticator.tenants.publish(tenants)


def bearer(key: ApiKey | str) -> dict[str, str]:
    """The headers with a key."""
    return {"Authorization": f"Bearer {key if isinstance(key, str) else key.text}"}
