"""Computes the condition of an object whose model name alone leads to another namespace."""

from penstock.core.observed.name_claims import MODEL_NAME_CONFLICT
from penstock.core.reconcile.condition_types import Condition


def name_conflict(message: str) -> tuple[Condition, ...]:
    """The condition, if there is a conflict. message: which namespace has the name; empty: none other."""
    if not message:
        return ()
    return (Condition(MODEL_NAME_CONFLICT, "True", "HeldByOtherNamespace", message),)
