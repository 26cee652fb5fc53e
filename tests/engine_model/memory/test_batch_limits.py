"""Tests of the batch limits that the engine chooses."""

import pytest

from penstock_engine.memory.batch_limits import candidates

GIB = 2**30


@pytest.mark.parametrize(
    ("device_name", "memory_gib", "expected"),
    [
        ("cpu", 8, [(64, 512)]),
        ("cpu", 512, [(64, 512)]),
        ("cuda", 24, [(256, 2048), (64, 512)]),
        ("cuda", 69.9, [(256, 2048), (64, 512)]),
        ("cuda", 70, [(1024, 8192), (256, 2048), (64, 512)]),
    ],
)
def test_defaults_suit_the_device(
    device_name: str, memory_gib: float, expected: list[tuple[int, int]]
) -> None:
    memory_bytes = int(memory_gib * GIB)
    assert candidates(None, None, device_name=device_name, memory_bytes=memory_bytes) == expected


@pytest.mark.parametrize(
    ("num_seqs", "num_tokens", "expected"),
    [
        (8, None, [(8, 8192), (8, 2048), (8, 512)]),
        (3000, None, [(3000, 8192), (3000, 3000)]),
        (9000, None, [(9000, 9000)]),
        (None, 300, [(300, 300), (256, 300), (64, 300)]),
        (None, 32, [(32, 32)]),
        (None, 16384, [(1024, 16384), (256, 16384), (64, 16384)]),
        (8, 32, [(8, 32)]),
    ],
)
def test_a_limit_that_is_set_is_kept_and_the_other_one_adapts(
    num_seqs: int | None, num_tokens: int | None, expected: list[tuple[int, int]]
) -> None:
    """A default never makes more sequences than tokens."""
    found = candidates(num_seqs, num_tokens, device_name="cuda", memory_bytes=80 * GIB)
    assert found == expected
