"""A seeded tenth of benchmarks/greedy_equality.py: every family and setting, shorter prompts."""

from types import ModuleType

import pytest
import torch

FAMILIES = (
    "llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3", "phi", "phi3", "phi3-long",
    "mixtral", "qwen3-moe",
)  # fmt: skip
# In bfloat16 a router changes its mind by a rounding; how often is a question for the campaign.
DENSE = [family for family in FAMILIES if family not in ("mixtral", "qwen3-moe")]


@pytest.mark.parametrize("family", FAMILIES)
def test_output_equals_transformers(greedy_equality: ModuleType, family: str) -> None:
    """Token for token, at any concurrency and chunk size, preempted, cached, guessed or not.

    Of the settings a part, in which every two choices meet.
    """
    settings = tuple(
        s
        for s in greedy_equality.SETTINGS
        if s.speculates == (s.prefix_caching != (s.chunk_tokens == 16))
    )
    results = list(
        greedy_equality.campaign(
            (family,), settings, num_prompts=10, longest=250, new_tokens=16, seed=1
        )
    )
    print(*results, sep="\n")
    assert len(results) == 7
    for result in results:
        assert result.verdicts["equal"] >= 9
        assert result.verdicts["different"] == 0
        # Those that see through a window in each layer give blocks back before they run out.
        if family not in ("mistral", "phi3"):
            assert (result.stats.preemptions > 0) == (result.setting.concurrency == 16)
        assert (result.stats.prefix_hits_tokens > 0) == result.setting.prefix_caching
        assert (result.stats.draft_tokens > 0) == result.setting.speculates


@pytest.mark.parametrize("family", DENSE)
def test_bfloat16_differs_by_rounding_only(greedy_equality: ModuleType, family: str) -> None:
    [result] = greedy_equality.campaign(
        (family,), greedy_equality.BFLOAT16_SETTINGS[1:], num_prompts=8, longest=120, new_tokens=12,
        seed=1, dtype="bfloat16",
    )  # fmt: skip
    print(result)
    assert result.verdicts["different"] == 0


@pytest.mark.parametrize(
    ("tokens", "dtype", "verdict"),
    [
        ([5, 6], "float32", "equal"),
        ([5, 7], "float32", "tie"),
        ([4, 6], "float32", "different"),
        ([5, 8], "float32", "different"),
        ([5, 8], "bfloat16", "tie"),
        ([4, 6], "bfloat16", "noise"),
        ([3, 6], "bfloat16", "different"),
    ],
)
def test_a_wrong_token_is_not_excused(
    greedy_equality: ModuleType, tokens: list[int], dtype: str, verdict: str
) -> None:
    """The campaign can fail."""
    logits = torch.zeros(2, 9)
    logits[0, [3, 4, 5]] = torch.tensor([1.0, 3.6, 3.8])
    logits[1, [6, 7, 8]] = torch.tensor([3.0, 3.0 - 5e-5, 2.99])
    expected = greedy_equality.Reference(prompt=[1], tokens=[5, 6], logits=logits)
    noise = 0.0 if dtype == "float32" else 0.15
    assert greedy_equality.compare(expected, tokens, dtype, noise) == verdict
