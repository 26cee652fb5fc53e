"""Hashes of the blocks of a prompt, as engines publish them in block events."""

from functools import lru_cache

from penstock.sim.request import Request, block_token
from penstock_engine.core.kv_cache.blocks import chain_hash, root_hash

# Hashes kept, each of about 200 bytes: prompts of a run share most of theirs.
MAX_HASHES = 200_000


def block_hashes(request: Request, block_tokens: int) -> list[bytes]:
    """Hash of each block of the prompt that an engine can have cached.

    The last token is always computed, so a block that ends with it is none of them.
    """
    hashes: list[bytes] = []
    parent = root_hash("")
    for index in range((request.prompt_tokens - 1) // block_tokens):
        parent = _hash(parent, block_token(request, index), block_tokens)
        hashes.append(parent)
    return hashes


@lru_cache(MAX_HASHES)
def _hash(parent: bytes, token: int, block_tokens: int) -> bytes:
    return chain_hash(parent, [token] * block_tokens)
