"""Reads and changes the Secrets that have the hashes of API keys.

Every change is a patch of single entries, so commands that run at the same time lose no key.
"""

import base64
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.api.conversion.tenants import to_tenant
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import SECRETS, TENANTS
from penstock.core.tenants.api_key import SECRET_TYPE, KeyHash, StoredKey, decode_stored_key
from penstock.core.tenants.identity_claims import secret_holders
from penstock.core.tenants.tenant import ApiKeys, Tenant
from penstock.errors import AlreadyExists, KubeError, NotFound, Rejected

MANAGER = "penstock-keys"
# Attempts of a change while others change the same key.
MAX_ATTEMPTS = 5
# Text by which the API server refuses a Secret of more than 1 MiB.
TOO_LONG = "Too long"


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A key, the Secret that has it, and the tenant that names the Secret; empty if none does."""

    key: StoredKey
    secret: str
    tenant: str


class KeyStore:
    """The Secrets of one namespace. All methods raise KubeError."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace

    async def secret_of(self, tenant: str, wanted: str | None) -> str:
        """Name of the Secret for new keys of a tenant. wanted: the one to choose of several."""
        try:
            body = await self._kube.get(TENANTS, None, tenant)
            identities = to_tenant(body).identities
        except NotFound as error:
            message = f"there is no Tenant {tenant}: `kubectl get tenants` shows those there are"
            raise NotFound(message) from error
        except ValueError as error:
            raise KubeError(str(error)) from error
        names = [each.secret for each in identities if isinstance(each, ApiKeys)]
        if wanted is not None and wanted not in names:
            raise KubeError(
                f"no identity of the tenant {tenant} has the Secret {wanted}: add one of type APIKey with "
                "this secretName"
            )
        if not names:
            raise KubeError(
                f"the tenant {tenant} takes no API keys: add an identity of type APIKey to its spec"
            )
        if wanted is None and len(names) > 1:
            raise KubeError(
                f"the tenant {tenant} has the Secrets {', '.join(names)}: choose one with --secret-name"
            )
        secret = wanted or names[0]
        holder = (await self._holders()).get(secret, tenant)
        if holder != tenant:
            raise KubeError(
                f"the keys of the Secret {secret} are those of the older Tenant {holder}: give the tenant "
                f"{tenant} another secretName"
            )
        return secret

    async def add(self, secret: str, key: StoredKey) -> None:
        """Add a key to a Secret, which is created if it does not exist."""
        data = {key.id: _to_data(key)}
        patch = {"type": SECRET_TYPE, "data": data}
        body: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}} | patch
        for _ in range(MAX_ATTEMPTS):
            try:
                await self._kube.merge(SECRETS, self._namespace, secret, patch, manager=MANAGER)
                return
            except NotFound:
                pass
            except Rejected as error:
                raise _explain(error, secret) from error
            try:
                await self._kube.create(SECRETS, self._namespace, body, fieldManager=MANAGER)
                return
            except AlreadyExists:
                continue
            except NotFound as error:
                raise NotFound(
                    f"the namespace {self._namespace} of API keys does not exist: create it, or name another "
                    "one with --keys-namespace"
                ) from error
        raise KubeError(f"the Secret {secret} is created and deleted all the time")

    async def find_all(self) -> list[FoundKey]:
        """All keys, by tenant and by time. Entries that are no keys are left out."""
        holders = await self._holders()
        found = [
            FoundKey(key, secret["metadata"]["name"], holders.get(secret["metadata"]["name"], ""))
            for secret in await self._secrets()
            for key in _keys(secret)
        ]
        return sorted(found, key=lambda each: (each.tenant, each.secret, each.key.created_s))

    async def rotate(
        self, key_id: str, new: StoredKey, old_expires_s: float
    ) -> tuple[StoredKey, StoredKey]:
        """Add a key beside an old one, which expires then, or earlier if it does anyway. Returns new and old.

        new: with the name and the lifetime to take from the old key still empty or infinite.
        """
        for _ in range(MAX_ATTEMPTS):
            secret, old = await self._find(key_id)
            successor = replace(new, name=new.name or old.name)
            if new.lifetime_s == math.inf and old.lifetime_s != math.inf:
                new_hash = replace(new.hash, expires_s=new.created_s + old.lifetime_s)
                successor = replace(successor, hash=new_hash, lifetime_s=old.lifetime_s)
            expires_s = min(old.hash.expires_s, old_expires_s)
            ending = replace(old, hash=KeyHash(old.hash.digest, expires_s))
            path = f"/data/{key_id}"
            steps: Sequence[Object] = [
                {"op": "test", "path": path, "value": secret["data"][key_id]},
                {"op": "replace", "path": path, "value": _to_data(ending)},
                {"op": "add", "path": f"/data/{successor.id}", "value": _to_data(successor)},
            ]
            name = secret["metadata"]["name"]
            try:
                await self._kube.patch(SECRETS, self._namespace, name, steps, manager=MANAGER)
                return successor, ending
            except Rejected as error:
                if TOO_LONG in str(error):
                    raise _explain(error, name) from error
        raise KubeError(f"the key {key_id} changes all the time: try again")

    async def remove(self, key_id: str) -> None:
        """Delete a key. Gateways refuse it within 2 s."""
        secret, _ = await self._find(key_id)
        await self._remove(secret["metadata"]["name"], [key_id])

    async def prune(self, now_s: float) -> int:
        """Delete the keys that have expired. Returns their number."""
        num_removed = 0
        for secret in await self._secrets():
            expired = [each.id for each in _keys(secret) if each.hash.expires_s <= now_s]
            if expired:
                await self._remove(secret["metadata"]["name"], expired)
                num_removed += len(expired)
        return num_removed

    async def _holders(self) -> dict[str, str]:
        """Names of the tenants that have the Secrets of keys: of several the oldest."""
        tenants, _ = await self._kube.list(TENANTS)
        holders = secret_holders(_readable(tenants))
        return {secret: tenant.name for secret, (tenant, _) in holders.items()}

    async def _remove(self, secret: str, key_ids: Sequence[str]) -> None:
        patch: Object = {"data": dict.fromkeys(key_ids)}
        await self._kube.merge(SECRETS, self._namespace, secret, patch, manager=MANAGER)

    async def _find(self, key_id: str) -> tuple[Object, StoredKey]:
        for secret in await self._secrets():
            for key in _keys(secret):
                if key.id == key_id:
                    return secret, key
        raise NotFound(f"no key has the id {key_id}: `penstock keys list` shows those there are")

    async def _secrets(self) -> list[Object]:
        selector = f"type={SECRET_TYPE}"
        bodies, _ = await self._kube.list(SECRETS, self._namespace, fieldSelector=selector)
        return bodies


def _readable(bodies: Iterable[Object]) -> Iterator[Tenant]:
    """The Tenants, without those that a gateway cannot read: nobody belongs to them."""
    for body in bodies:
        try:
            yield to_tenant(body)
        except ValueError:
            continue


def _keys(secret: Object) -> list[StoredKey]:
    found = []
    for key_id, data in (secret.get("data") or {}).items():
        try:
            found.append(decode_stored_key(key_id, base64.b64decode(data or "")))
        except ValueError:
            continue  # gateways do not take it either
    return found


def _to_data(key: StoredKey) -> str:
    return base64.b64encode(key.encode().encode()).decode()


def _explain(error: Rejected, secret: str) -> Rejected:
    """The error of a Secret that takes no further key."""
    if TOO_LONG in str(error):
        return Rejected(
            f"the Secret {secret} is full, as it may have 1 MiB: delete expired keys with `penstock keys "
            "prune`, or add an identity with another Secret to the tenant"
        )
    if "type" in str(error):
        return Rejected(
            f"the Secret {secret} is not of the type {SECRET_TYPE}: name another one in the tenant's identity"
        )
    return error
