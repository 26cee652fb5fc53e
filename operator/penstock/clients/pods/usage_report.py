"""The ledger of usage as a gateway reports it: its encoding, and its parsing."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from penstock.core.formats.json_text import parse_json
from penstock.core.formats.serialization import DecodeError, deserialize

PATH = "/penstock/usage"
# Most days of one report.
MAX_DAYS = 31
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class UsageRow:
    """A tenant's usage of a service in a day of UTC."""

    day_s: int  # its beginning, since the epoch
    tenant: str
    service: str  # "namespace/name"
    adapter: str  # name of the LoraAdapter; empty: the base model
    requests: int
    prompt_tokens: int
    cached_tokens: int  # part of the prompt's
    output_tokens: int


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage of some days."""

    rows: tuple[UsageRow, ...]


def encode(rows: Sequence[UsageRow]) -> bytes:
    """Encode a report as JSON, on one line that ends: a reader takes another for cut off."""
    return json.dumps({"rows": [asdict(row) for row in rows]}).encode() + b"\n"


def parse(text: bytes) -> Sequence[UsageRow]:
    """Parse a report. Raises ValueError."""
    try:
        return deserialize(UsageReport, parse_json(text.decode())).rows
    except DecodeError as error:
        raise ValueError(str(error)) from error
