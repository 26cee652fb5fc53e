"""Mooncake traces (FAST'25, Apache-2.0): one JSON object per line.

`timestamp` is in ms. `hash_ids` has one id per block of 512 prompt tokens, the last block may be shorter.
Equal ids mean equal tokens up to there.
"""

import json
from collections.abc import Iterable, Iterator

from penstock.sim.traces.row import Row

BLOCK_TOKENS = 512


def rows(lines: Iterable[str]) -> Iterator[Row]:
    """Rows of the JSON lines. Raises KeyError or ValueError for a line of another form."""
    for line in lines:
        record = json.loads(line)
        yield Row(
            record["timestamp"] / 1000,
            max(1, record["input_length"]),
            max(1, record["output_length"]),
            tuple(record["hash_ids"]),
        )


def session_of(blocks: tuple[int, ...]) -> str:
    """Key of the conversation: its second block, as all requests of the trace have the same first one."""
    return str(blocks[1]) if len(blocks) > 1 else ""
