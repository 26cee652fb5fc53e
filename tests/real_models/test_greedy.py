"""Greedy answers of models with real weights, read from GGUF, equal transformers' in float32."""

from collections import Counter
from typing import Any

import pytest
import torch
from benchmarks.engine.greedy_equality import BLOCK_SIZE, reference
from benchmarks.engine.real_models import generate, round_weights
from safetensors.torch import load_file
from tests.support.engine.verdicts import compare

from penstock_engine.checkpoints.weights import open_checkpoints
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import Layout
from penstock_engine.quantization.rounding import Quantization

NEW_TOKENS = 16
NGRAM = SpeculationConfig(method="ngram", num_speculative_tokens=4, prompt_lookup_min=1)


def verdicts(references: list[Any], outputs: list[list[int]]) -> Counter[str]:
    pairs = zip(references, outputs, strict=True)
    return Counter(compare(expected, tokens).verdict for expected, tokens in pairs)


def test_weights_equal_those_that_transformers_reads(real_model: Any) -> None:
    with open_checkpoints(real_model.gguf) as (checkpoint, _):
        for name, weight in load_file(real_model.folder / "model.safetensors").items():
            torch.testing.assert_close(checkpoint.get(name), weight, rtol=0, atol=0, msg=name)


def test_answers_equal_transformers(real_model: Any) -> None:
    outputs, _ = generate(real_model.gguf, real_model.prompts, NEW_TOKENS)
    assert outputs == [expected.tokens for expected in real_model.references]


def test_prefix_hits_change_nothing(real_model: Any) -> None:
    outputs, stats = generate(
        real_model.gguf, real_model.prompts, NEW_TOKENS, num_seqs=1, prefix_caching=True
    )
    assert outputs == [expected.tokens for expected in real_model.references]
    assert stats.prefix_hits_tokens > 0


def test_preemption_and_small_chunks_change_nothing(real_model: Any) -> None:
    """The prompts fill all blocks, so that none is left for the answers."""
    prompts = real_model.prompts[1:5]
    outputs, stats = generate(
        real_model.gguf, prompts, NEW_TOKENS, chunk_tokens=64,
        num_blocks=sum(-(-len(prompt) // BLOCK_SIZE) for prompt in prompts),
    )  # fmt: skip
    assert outputs == [expected.tokens for expected in real_model.references[1:5]]
    assert stats.preemptions > 0


def test_ngram_guesses_change_nothing(real_model: Any) -> None:
    outputs, stats = generate(real_model.gguf, real_model.prompts, NEW_TOKENS, speculation=NGRAM)
    assert outputs == [expected.tokens for expected in real_model.references]
    assert stats.draft_tokens > 0


def test_it_guesses_its_own_tokens(real_model: Any) -> None:
    itself = SpeculationConfig(
        method="draft_model", num_speculative_tokens=3, model=str(real_model.gguf)
    )
    outputs, stats = generate(
        real_model.gguf,
        real_model.prompts,
        NEW_TOKENS,
        speculation=itself,
        draft_model_dir=real_model.gguf,
    )
    assert outputs == [expected.tokens for expected in real_model.references]
    assert sum(stats.accepted_by_position) > 0.9 * stats.draft_tokens > 0


def test_ranks_that_share_each_layer_change_nothing(real_model: Any) -> None:
    num_ranks = 3 if ModelConfig.load(real_model.gguf).layers[0].attention.num_heads % 2 else 2
    outputs, _ = generate(
        real_model.gguf, real_model.prompts[:5], NEW_TOKENS, layout=Layout(num_ranks)
    )
    assert outputs == [expected.tokens for expected in real_model.references[:5]]


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_rounded_weights_answer_as_transformers_with_the_same(
    real_model: Any, kind: Quantization
) -> None:
    prompts = real_model.prompts[:4]
    outputs, _ = generate(real_model.gguf, prompts, NEW_TOKENS, quantization=kind)
    model = real_model.load()
    round_weights(model, real_model.gguf, kind)
    references = [reference(model, prompt, NEW_TOKENS) for prompt in prompts]
    assert verdicts(references, outputs)["different"] == 0
    assert outputs != [expected.tokens for expected in real_model.references[:4]]
