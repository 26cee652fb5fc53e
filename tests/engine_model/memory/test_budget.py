"""Tests of the estimated memory of activations."""

from penstock_engine.memory.budget import activation_bytes

MIB = 2**20


def test_activations_grow_with_the_batch() -> None:
    small = activation_bytes(num_tokens=512, hidden_size=256, intermediate_size=768)
    assert small == 12 * MIB
    assert activation_bytes(num_tokens=1024, hidden_size=256, intermediate_size=768) == 2 * small
