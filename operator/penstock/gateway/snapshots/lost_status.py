"""Keeps the model name of an object of the snapshot while the object's status is lost."""

from dataclasses import replace
from typing import TypeVar

from penstock.clients.kubernetes.client import Object
from penstock.core.observed.name_claims import restored_claim
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Route, name_claim

T = TypeVar("T", Route, Adapter)


def with_last_precedence(body: Object, found: T, last: T | None) -> T:
    """The object with its previous precedence if its status is lost. The operator writes the status again.

    found: read from `body`. last: of the previous snapshot; None if it was not in it.
    """
    if last is None:
        return found
    claim = restored_claim(body, name_claim(found), name_claim(last))
    return replace(found, precedence=claim.precedence)
