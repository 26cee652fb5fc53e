"""Mooncake's traces (FAST'25, Apache-2.0): a JSON object a line.

`timestamp` is in ms; `hash_ids` has one id for each block of 512 prompt tokens, the last one for what
is left over: equal ids mean equal tokens up to there.
"""

import json
from collections.abc import Iterable, Iterator

from penstock.sim.traces.row import Row

BLOCK_TOKENS = 512


def rows(lines: Iterable[str]) -> Iterator[Row]:
    """Raises KeyError or ValueError where a line is not of this form."""
    for line in lines:
        record = json.loads(line)
        yield Row(
            record["timestamp"] / 1000,
            max(1, record["input_length"]),
            max(1, record["output_length"]),
            tuple(record["hash_ids"]),
        )
