"""Finds what verifies an API key by the key's id: of all keys in the Secrets of one namespace."""

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Informer
from penstock.clients.kubernetes.resources import SECRETS
from penstock.core.tenants.api_key import SECRET_TYPE, KeyHash, decode_stored_key

logger = logging.getLogger(__name__)

# Interval at which the index is made again if Secrets have changed, so that a key is refused within 2 s after
# it was revoked. An index of 100,000 keys takes 5 ms of the event loop.
CHECK_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class IndexedKey(KeyHash):
    """The hash of a key, and where it is from. secret: name of the Secret that has it."""

    secret: str = ""


class ApiKeyIndex:
    """The keys of all Secrets. current: by their ids; None before the first list."""

    def __init__(self) -> None:
        self.current: Mapping[str, IndexedKey] | None = None

    def publish(self, keys: Mapping[str, IndexedKey]) -> None:
        """Replace all keys."""
        self.current = keys

    async def follow(
        self, kube: Kube, namespace: str, restarted: Callable[[str], None] = lambda _: None
    ) -> None:
        """Watch the Secrets until cancelled. Without the API server the last known keys stay.

        restarted: called each time that they are listed again.
        """
        changed = asyncio.Event()
        informer = Informer(
            kube, SECRETS, namespace=namespace, field_selector=f"type={SECRET_TYPE}",
            changed=lambda _: changed.set(), restarted=restarted, is_optional=True,
            reduce=reduce_secret, page_size=1,
        )  # fmt: skip
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            await informer.synced.wait()
            while True:
                if not informer.is_denied and (changed.is_set() or self.current is None):
                    changed.clear()
                    self.publish(index_keys(informer))
                await asyncio.sleep(CHECK_INTERVAL_S)


def index_keys(secrets: Iterable[Object]) -> dict[str, IndexedKey]:
    """The keys of all Secrets by their ids. Of two Secrets with one key, such as a copy, the older counts.

    secrets: as `reduce_secret` returns them.
    """
    index: dict[str, IndexedKey] = {}
    for secret in sorted(secrets, key=_age, reverse=True):
        index.update(secret["keys"])
    return index


def _age(secret: Object) -> tuple[str, str]:
    metadata = secret["metadata"]
    return metadata["creationTimestamp"], metadata["name"]


def reduce_secret(secret: Object) -> Object:
    """The part of a Secret that is kept: of 1,000 keys 0.3 MB in place of 1 MB, and no texts."""
    metadata = secret["metadata"]
    kept = ("namespace", "name", "resourceVersion", "creationTimestamp")
    keys = _read(metadata["name"], secret.get("data") or {})
    return {"metadata": {name: metadata[name] for name in kept}, "keys": keys}


def _read(secret: str, data: Mapping[str, Any]) -> dict[str, IndexedKey]:
    """The keys of a Secret by their ids. What is no key is left out, and logged without its value."""
    keys: dict[str, IndexedKey] = {}
    for key_id, entry in data.items():
        try:
            found = decode_stored_key(key_id, base64.b64decode(entry or "")).hash
        except ValueError as error:
            logger.error("the Secret %s: %s", secret, error)
            continue
        keys[key_id] = IndexedKey(found.digest, found.expires_s, secret)
    return keys
