"""Tests of the encoding of block events against the message classes of vLLM 0.32."""

import msgspec
import pytest
from tests.engine_server.kv_events.vllm_subscriber import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KVEventBatch,
    decode,
)

from penstock_engine.core.kv_cache import block_events
from penstock_engine.core.kv_cache.block_events import BlockEvent, BlocksRemoved, BlocksStored
from penstock_engine.kv_events.encoding import BatchEncoder

# The last 64 bits of a hash, in big-endian order, are its published value.
FIRST, SECOND = bytes(24) + bytes([1, 0, 0, 0, 0, 0, 0, 2]), b"\xff" * 31 + b"\x07"
FIRST_INT, SECOND_INT = (1 << 56) + 2, (1 << 64) - 249


def stored(**changes: object) -> BlocksStored:
    event = BlocksStored((FIRST, SECOND), None, (5, 6, 7, 8), "", "")
    return event._replace(**changes)


def vllm_stored(**changes: object) -> BlockStored:
    values: dict[str, object] = {
        "block_hashes": [FIRST_INT, SECOND_INT], "parent_block_hash": None, "token_ids": [5, 6, 7, 8],
        "block_size": 2, "lora_id": None, "medium": "GPU", "lora_name": None, "extra_keys": [None, None],
        "group_idx": 0, "kv_cache_spec_kind": "full_attention",
    }  # fmt: skip
    return BlockStored(**values | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (stored(), vllm_stored()),
        (stored(parent=SECOND), vllm_stored(parent_block_hash=SECOND_INT)),
        (stored(cache_salt="s"), vllm_stored(extra_keys=[("s",), None])),
        (
            stored(cache_salt="s", parent=SECOND),  # the salt is in the hash of the first block
            vllm_stored(parent_block_hash=SECOND_INT),
        ),
        (
            stored(adapter="a#b#12", cache_salt="s"),
            vllm_stored(lora_id=12, lora_name="a#b", extra_keys=[("a#b", "s"), ("a#b",)]),
        ),
        (BlocksRemoved((FIRST, SECOND)), BlockRemoved([FIRST_INT, SECOND_INT], "GPU", 0)),
        (block_events.AllBlocksCleared(), AllBlocksCleared()),
    ],
)
def test_an_event_is_that_of_vllm(event: BlockEvent, expected: object) -> None:
    payload = BatchEncoder(2, None).encode(1.5, [event])

    assert decode(payload) == KVEventBatch(1.5, [expected], 0)  # type: ignore[list-item]
    # The bytes are those that vLLM's encoder makes: the same fields in the same order.
    assert payload == msgspec.msgpack.encode(KVEventBatch(1.5, [expected], 0))  # type: ignore[list-item]


def test_a_sliding_window_is_in_the_event() -> None:
    [event] = decode(BatchEncoder(2, 64).encode(1.5, [stored()])).events

    assert event == vllm_stored(
        kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=64
    )
