"""Tenants with API keys and limits, for gateways of benchmarks."""

import base64
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.core.tenants.api_key import make_api_key, store_key
from penstock.core.tenants.tenant import Access, ApiKeys, Tenant, UsageLimit
from penstock.gateway.app import Gateway
from penstock.gateway.quotas.redis_store import RedisStore
from penstock.gateway.quotas.store import Store
from penstock.gateway.tenants.api_key_index import IndexedKey, index_keys, reduce_secret

NUM_TENANTS, NUM_KEYS = 10, 10
# Limits that a tenant of a company might have, which no benchmark reaches.
LIMITS = (
    UsageLimit("tokens", "Tokens", 10**10, "Minute"),
    UsageLimit("budget", "Tokens", 10**12, "Month"),
    UsageLimit("calls", "Requests", 10**9, "Month"),
)
MAX_RUNNING = 10_000


@dataclass(frozen=True, slots=True)
class TenantFleet:
    """Tenants of the namespace "default", and their keys. keys: as clients send them, of all in turn."""

    tenants: Sequence[Tenant]
    index: Mapping[str, IndexedKey]
    keys: Sequence[str]

    def publish(self, gateway: Gateway) -> None:
        """Make them known to a gateway, as its watches do."""
        authenticator = gateway.state.authenticator
        authenticator.keys.publish(self.index)
        authenticator.tenants.publish(self.tenants)


def make_tenants(max_running: int = MAX_RUNNING) -> TenantFleet:
    """The tenants and their keys, the same ones in each process. max_running: requests of each at a time."""
    rng = random.Random(1)
    keys: list[list[str]] = []
    secrets, tenants = [], []
    for number in range(NUM_TENANTS):
        name, data = f"tenant-{number}", {}
        keys.append([])
        for position in range(NUM_KEYS):
            key = make_api_key(rng.randbytes(40))
            stored = store_key(key, rng.randbytes(16), f"key {position}", 0.0)
            data[key.id] = base64.b64encode(stored.encode().encode()).decode()
            keys[-1].append(key.text)
        metadata = {
            "name": name, "namespace": "penstock-keys", "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        secrets.append(reduce_secret({"metadata": metadata, "data": data}))
        tenants.append(
            Tenant(
                name, 1, (ApiKeys("keys", name),), (Access("default"),), limits=LIMITS,
                max_running=max_running,
            )
        )  # fmt: skip
    return TenantFleet(
        tenants, index_keys(secrets), [key for each in zip(*keys, strict=True) for key in each]
    )


def quota_store(url: str) -> Store | None:
    """The store at a URL; None if it is empty."""
    return RedisStore(url, "gateway-0") if url else None
