"""Option for the peers that may connect to engines."""

import json
from typing import Annotated, Any

import typer

EnginesFrom = Annotated[
    str | None,
    typer.Option(
        help="Restrict connections to engines, by a NetworkPolicy in each namespace with services, to "
        "gateways, operators and these peers: a JSON list, as in a NetworkPolicy's `from`. Default: no such "
        "policies."
    ),
]


def peers(text: str) -> tuple[dict[str, Any], ...]:
    """Parse the option. Raises BadParameter if it is no list of objects."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise typer.BadParameter(f"--engines-from must be a JSON list of peers, not {text}")
    return tuple(found)
