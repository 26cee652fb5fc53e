"""Tiny models made on the spot."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import transformers

GREEDY_EQUALITY = Path(__file__).parents[2] / "benchmarks" / "greedy_equality.py"


@pytest.fixture(scope="session")
def greedy_equality() -> ModuleType:
    """The campaign's script, with its small model of each family."""
    spec = importlib.util.spec_from_file_location("greedy_equality", GREEDY_EQUALITY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up while it is being executed.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "greedy_equality", module)
        spec.loader.exec_module(module)
    return module


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
