"""Each family's arithmetic against transformers': all logits of a prompt, not only the first."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.engine.families import FAMILIES

from penstock_engine.checkpoints.loading import load_weights
from penstock_engine.layers.attention import Span
from penstock_engine.layers.gathered_attention import GatheredAttention
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM
from penstock_engine.models.registry import FAMILIES as REGISTRY

PROMPT = [(37 * i * i + 11 * i) % 512 for i in range(150)]
BLOCK_SIZE = 16


@pytest.fixture(scope="session")
def model_dirs(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    directories = {}
    for name, family in FAMILIES.items():
        directories[name] = tmp_path_factory.mktemp(name)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            family.make(directories[name])
    return directories


@torch.inference_mode()
def engine_logits(model_dir: Path, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[tokens, vocabulary], from one chunk and then the last ten tokens one by one."""
    config = ModelConfig.load(model_dir)
    model = DecoderForCausalLM(config, max_positions=len(PROMPT), dtype=dtype, device="cpu")
    load_weights(model, model_dir, config.family.names, dtype, "cpu")
    num_blocks = -(-len(PROMPT) // BLOCK_SIZE)
    shapes = [layer.attention.kv.shape(num_blocks, BLOCK_SIZE) for layer in config.layers]
    caches = [KVCache(torch.zeros(shape, dtype=dtype), None) for shape in shapes]
    first = len(PROMPT) - 10
    parts = []
    for start, end in [(0, first), *((i, i + 1) for i in range(first, len(PROMPT)))]:
        positions = torch.arange(start, end)
        attend = GatheredAttention(
            [Span(start, end, tuple(range(num_blocks)))], positions, dtype=dtype
        )
        hidden = model(torch.tensor(PROMPT[start:end]), positions, attend, caches)
        parts.append(model.logits(hidden))
    return torch.cat(parts).float()


@torch.inference_mode()
def transformers_logits(model: Any) -> torch.Tensor:
    logits: torch.Tensor = model(torch.tensor([PROMPT])).logits[0].float()
    return logits


def test_every_architecture_is_compared() -> None:
    compared = {f"{family.name}ForCausalLM" for family in FAMILIES.values()}
    assert compared == set(REGISTRY)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_equal_those_of_transformers(model_dirs: dict[str, Path], name: str) -> None:
    expected = transformers_logits(FAMILIES[name].load(model_dirs[name], "float32"))
    torch.testing.assert_close(engine_logits(model_dirs[name]), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", FAMILIES)
def test_bfloat16_is_as_accurate_as_in_transformers(model_dirs: dict[str, Path], name: str) -> None:
    """Median distance from what float32 makes of the same weights; a router may change its mind."""
    model = FAMILIES[name].load(model_dirs[name], "bfloat16")
    theirs = transformers_logits(model)
    exact = transformers_logits(model.float())
    ours = engine_logits(model_dirs[name], torch.bfloat16)
    their_error, our_error = ((x - exact).abs().median().item() for x in (theirs, ours))
    print(f"{name}: transformers {their_error:.5f}, engine {our_error:.5f}")
    assert our_error < 1.5 * their_error


ROPE = {"rope_type": "default", "rope_theta": 10000.0}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama", {"rope_parameters": ROPE}),
        ("qwen2", {"sliding_window": 51}),
        ("qwen2", {"layer_types": None, "max_window_layers": 2}),
        ("qwen3", {"rms_norm_eps": 0.1}),
        ("mistral", {"sliding_window": 41}),
        ("mistral", {"sliding_window": None}),
        ("gemma", {"hidden_act": "silu"}),
        ("gemma2", {"sliding_window": 41}),
        ("gemma2", {"query_pre_attn_scalar": 24}),
        ("gemma2", {"attn_logit_softcapping": None}),
        ("gemma2", {"attn_logit_softcapping": 3.0}),
        ("gemma2", {"final_logit_softcapping": 3.0}),
        ("gemma3", {"sliding_window": 41}),
        ("gemma3", {"rope_parameters": {**ROPE, "rope_theta": 1e6}}),
        ("phi", {"rope_parameters": {**ROPE, "partial_rotary_factor": 1.0}}),
        ("phi3", {"sliding_window": 61}),
        ("phi3", {"original_max_position_embeddings": 149}),
        ("mixtral", {"num_experts_per_tok": 3}),
        ("mixtral", {"norm_topk_prob": False}),
        ("qwen3-moe", {"norm_topk_prob": True}),
    ],
    ids=str,
)
def test_what_makes_a_family_is_felt(
    model_dirs: dict[str, Path], tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    """A key that were passed over would not show in equal outputs if nothing hung on it."""
    for file in model_dirs[name].iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "config.json").unlink()
    config = json.loads((model_dirs[name] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changes))
    difference = engine_logits(tmp_path) - engine_logits(model_dirs[name])
    assert difference.abs().max() > 0.01
