"""Computes the condition of an object that clients cannot reach by its model name alone."""

from penstock.core.observed.name_claims import MODEL_NAME_CONFLICT
from penstock.core.reconcile.condition_types import Condition

# Message of a service while the operator cannot list the routes or adapters, which may have its short name.
NAMES_NOT_LISTED = (
    "clients reach the model as NAMESPACE/NAME only: the operator has not listed all names yet"
)


def name_conflict(message: str) -> tuple[Condition, ...]:
    """The condition, if there is a conflict. message: NAMES_NOT_LISTED, or who has the name; empty: none."""
    if not message:
        return ()
    reason = "NamesNotListed" if message == NAMES_NOT_LISTED else "HeldByOtherNamespace"
    return (Condition(MODEL_NAME_CONFLICT, "True", reason, message),)
