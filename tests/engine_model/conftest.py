"""Tiny models made on the spot."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch
import transformers


@pytest.fixture(scope="session")
def greedy_equality() -> ModuleType:
    """The campaign's script, with its small model of each family."""
    return importlib.import_module("benchmarks.engine.greedy_equality")


@pytest.fixture(scope="session")
def qwen3_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 of 40 thousand parameters with a vocabulary of 64; token 63 ends."""
    directory = tmp_path_factory.mktemp("qwen3")
    config = transformers.Qwen3Config(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
        tie_word_embeddings=True, initializer_range=0.2, bos_token_id=0, eos_token_id=63,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.Qwen3ForCausalLM(config).save_pretrained(directory)
    return directory
