"""Block events in MessagePack, in the form that vLLM 0.32 publishes.

A batch is an array, and each event a map:

    [time, [event, ...], data-parallel rank]

An event has its class in the key `type`. Optional fields of vLLM that an engine has no value for (locality,
ownership, session_id) are absent, as they are there.
"""

import msgspec

from penstock_engine.core.kv_cache.block_events import (
    AllBlocksCleared,
    BlockEvent,
    BlocksRemoved,
    BlocksStored,
)

# Rank and group of all events: an engine is one data-parallel rank, and its layers share a block table.
RANK = 0
GROUP = 0
MEDIUM = "GPU"  # vLLM's word for the engine's own KV cache, also on the CPU
LOW_64_BITS = (1 << 64) - 1


class BatchEncoder:
    """Encodes batches of events."""

    def __init__(self, block_size: int, window_tokens: int | None) -> None:
        """block_size: in tokens. window_tokens: the sliding window of all layers; None: at least one
        layer attends to everything."""
        self._block_size = block_size
        self._window: dict[str, object] = {"kv_cache_spec_kind": "full_attention"}
        if window_tokens is not None:
            self._window = {
                "kv_cache_spec_kind": "sliding_window",
                "kv_cache_spec_sliding_window": window_tokens,
            }
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, time_s: float, events: list[BlockEvent]) -> bytes:
        """time_s: since the epoch."""
        return self._encoder.encode((time_s, [self._fields(event) for event in events], RANK))

    def _fields(self, event: BlockEvent) -> dict[str, object]:
        """The map of an event."""
        match event:
            case BlocksStored():
                return self._stored_fields(event)
            case BlocksRemoved(hashes):
                return {
                    "type": "BlockRemoved",
                    "block_hashes": [external_hash(each) for each in hashes],
                    "medium": MEDIUM,
                    "group_idx": GROUP,
                }
            case AllBlocksCleared():
                return {"type": "AllBlocksCleared"}

    def _stored_fields(self, event: BlocksStored) -> dict[str, object]:
        name, _, number = event.adapter.rpartition("#")  # adapters/registry.py makes identities
        return {
            "type": "BlockStored",
            "block_hashes": [external_hash(each) for each in event.hashes],
            "parent_block_hash": None if event.parent is None else external_hash(event.parent),
            "token_ids": event.token_ids,
            "block_size": self._block_size,
            "lora_id": int(number) if name else None,
            "medium": MEDIUM,
            "lora_name": name or None,
            "extra_keys": _extra_keys(event, name),
            "group_idx": GROUP,
            **self._window,
        }


def external_hash(block_hash: bytes) -> int:
    """The hash as an integer: its last 64 bits, as vLLM publishes hashes by default."""
    return int.from_bytes(block_hash, "big") & LOW_64_BITS


def _extra_keys(event: BlocksStored, adapter_name: str) -> list[tuple[str, ...] | None]:
    """Parts of each block's hash besides its tokens: the adapter's name, and first the salt."""
    keys: list[tuple[str, ...] | None] = [(adapter_name,) if adapter_name else None]
    keys *= len(event.hashes)
    if event.parent is None and event.cache_salt:
        keys[0] = (*(keys[0] or ()), event.cache_salt)
    return keys
