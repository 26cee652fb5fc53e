"""Tests of the estimated memory of activations."""

from penstock_engine.memory.budget import activation_bytes

MIB = 2**20


def test_activations_grow_with_the_batch() -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 768, "attention_size": 1024}
    small = activation_bytes(num_tokens=512, **sizes)
    assert small == 12 * MIB
    assert activation_bytes(num_tokens=1024, **sizes) == 2 * small


def test_attention_counts_if_it_has_more_numbers_than_the_rest() -> None:
    sizes = {"num_tokens": 512, "hidden_size": 256, "intermediate_size": 768}
    assert activation_bytes(attention_size=21 * 256, **sizes) == 12 * MIB
    assert activation_bytes(attention_size=29 * 256, **sizes) == 16 * MIB
