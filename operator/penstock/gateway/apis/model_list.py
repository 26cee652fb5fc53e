"""Responses of `GET /v1/models` and `GET /v1/models/NAME`."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Claim, Service, Snapshot


class ModelList:
    """The body of `GET /v1/models`. Entries are encoded once for each snapshot: 2,000 adapters take 8 ms."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._cards: list[tuple[Claim, bytes]] = []

    def body(self, snapshot: Snapshot, allows: Callable[[Claim], bool]) -> bytes:
        """Return the list of the models that the caller may use, as JSON."""
        if self._snapshot is not snapshot:
            named = snapshot.models()
            ids = {claim.key: name for name, claim in named if isinstance(claim, Service)}
            self._cards = [
                (claim, json.dumps(_model_card(name, claim, ids)).encode()) for name, claim in named
            ]
            self._snapshot = snapshot
        cards = b", ".join(card for claim, card in self._cards if allows(claim))
        return b'{"object": "list", "data": [' + cards + b"]}"


def model(snapshot: Snapshot, name: str, claim: Claim) -> dict[str, Any]:
    """The response of `GET /v1/models/NAME`."""
    named = snapshot.models() if isinstance(claim, Adapter) else []
    ids = {each.key: name for name, each in named if isinstance(each, Service)}
    return _model_card(name, claim, ids)


def _model_card(name: str, claim: Claim, ids: Mapping[str, str]) -> dict[str, Any]:
    """Entry of the list of models. ids: name that clients use for each service, "namespace/name"."""
    card = {"id": name, "object": "model", "created": claim.created_s, "owned_by": "penstock"}
    if isinstance(claim, Adapter):
        card |= {"root": claim.version.uri, "parent": ids.get(claim.parent)}
    return card
