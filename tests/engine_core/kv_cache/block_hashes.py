"""Hashes of the blocks of a prompt."""

from collections.abc import Sequence

from penstock_engine.core.kv_cache.blocks import extend_hashes


def block_hashes(tokens: Sequence[int], block_size: int, salt: str = "") -> list[bytes]:
    """Hashes of the full blocks of `tokens`."""
    hashes: list[bytes] = []
    extend_hashes(hashes, tokens, block_size, salt)
    return hashes
