"""The operator's index of the model names that all watched objects claim."""

from collections.abc import Callable, Mapping

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.core.observed.name_claims import (
    CLAIM_KINDS,
    ClaimKind,
    NameClaim,
    ObjectKey,
    adapter_claim,
    alias_claims,
    restored_claim,
    route_claim,
    service_claim,
)
from penstock.core.observed.name_index import NameIndex

READERS: Mapping[ClaimKind, Callable[[Object], NameClaim | None]] = {
    "ModelRoute": route_claim,
    "InferenceService": service_claim,
    "LoraAdapter": adapter_claim,
}


class ModelNames:
    """Keeps the claims current, one at a time, as watches report their objects.

    is_listed: whether all objects of a kind have been listed. affected: called with the key of each service
    whose model name gets another holder because another object changed.
    """

    def __init__(
        self,
        *,
        is_listed: Callable[[ClaimKind], bool] = lambda _: True,
        affected: Callable[[Key], None] = lambda _: None,
    ) -> None:
        self.index = NameIndex(affected=self._notify)
        self.is_listed = is_listed
        self._affected = affected
        self._aliases: dict[Key, frozenset[ObjectKey]] = {}  # claims of each route on its aliases

    @property
    def is_complete(self) -> bool:
        return all(map(self.is_listed, CLAIM_KINDS))

    def read(self, kind: ClaimKind, body: Object) -> NameClaim | None:
        """Read the claim of an object: the last known one while its status is lost."""
        claim = READERS[kind](body)
        return claim and restored_claim(body, claim, self.index.get(claim.key))

    def update(self, kind: ClaimKind, key: Key, body: Object | None) -> None:
        """Read the claim of an object again. body: None if it is gone. An unreadable one keeps its claim."""
        try:
            claim = None if body is None else self.read(kind, body)
            aliases = [] if body is None or kind != "ModelRoute" else self._read_aliases(body)
        # The loop that serves the object logs why it cannot be read.
        except (AttributeError, KeyError, TypeError, ValueError):
            return
        if claim is None:
            self.index.remove((kind, *key))
        else:
            self.index.put(claim)
        if kind == "ModelRoute":
            self._put_aliases(key, aliases)

    def _read_aliases(self, body: Object) -> list[NameClaim]:
        return [
            restored_claim(body, claim, self.index.get(claim.key)) for claim in alias_claims(body)
        ]

    def _put_aliases(self, key: Key, claims: list[NameClaim]) -> None:
        """Replace the claims of a route on its aliases."""
        kept = frozenset(claim.key for claim in claims)
        for removed in self._aliases.pop(key, frozenset()) - kept:
            self.index.remove(removed)
        for claim in claims:
            self.index.put(claim)
        if kept:
            self._aliases[key] = kept

    def _notify(self, claim: NameClaim) -> None:
        if claim.kind == "InferenceService":
            self._affected((claim.namespace, claim.name))
