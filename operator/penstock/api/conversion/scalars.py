"""Converts single values of the API."""

from penstock.api.schema.scalars import Quantity


def quantities(wanted: dict[str, Quantity] | None) -> dict[str, str]:
    """Resource quantities as text."""
    return {name: str(quantity) for name, quantity in (wanted or {}).items()}
