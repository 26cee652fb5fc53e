"""Finds the stored hash of an API key by the key's id."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.tenants.api_key import KeyHash


@dataclass(frozen=True, slots=True)
class IndexedKey:
    """A key of a Secret. secret: the Secret's name."""

    hash: KeyHash
    secret: str


class ApiKeyIndex:
    """The keys of all Secrets. current: by their ids; None before the first list."""

    def __init__(self) -> None:
        self.current: Mapping[str, IndexedKey] | None = None

    def publish(self, keys: Mapping[str, IndexedKey]) -> None:
        """Replace all keys."""
        self.current = keys
