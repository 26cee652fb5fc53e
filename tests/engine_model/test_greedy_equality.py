"""A seeded tenth of benchmarks/engine/greedy_equality.py: every family and setting, shorter prompts."""

from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.support.engine.expert_choices import EngineRouters
from tests.support.engine.families import FAMILIES
from tests.support.engine.verdicts import Judge, Reference, compare


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
        # models with sliding windows in each layer free blocks before the pool is exhausted
        if family not in ("mistral", "phi3"):
            assert (result.stats.preemptions > 0) == (result.setting.concurrency == 16)
        assert (result.stats.prefix_hits_tokens > 0) == result.setting.prefix_caching
        assert (result.stats.draft_tokens > 0) == result.setting.speculates


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_differs_by_rounding_only(greedy_equality: ModuleType, family: str) -> None:
    [result] = greedy_equality.campaign(
        (family,), greedy_equality.BFLOAT16_SETTINGS[1:], num_prompts=8, longest=120, new_tokens=12,
        seed=1, dtype="bfloat16",
    )  # fmt: skip
    print(result)
    assert result.verdicts["different"] == 0


@pytest.mark.parametrize(
    ("tokens", "verdict"),
    [([5, 6], "equal"), ([5, 7], "tie"), ([4, 6], "different"), ([5, 8], "different")],
)
def test_a_wrong_token_is_not_excused(tokens: list[int], verdict: str) -> None:
    """A tie is a token whose logit equals the reference's within rounding."""
    logits = torch.zeros(2, 9)
    logits[0, [4, 5]] = torch.tensor([3.6, 3.8])
    logits[1, [6, 7, 8]] = torch.tensor([3.0, 3.0 - 5e-5, 2.99])
    expected = Reference(prompt=[1], tokens=[5, 6], logits=logits, routers=[])
    assert compare(expected, tokens).verdict == verdict


@pytest.mark.parametrize("family", ["llama", "mixtral"])
def test_nor_is_one_in_bfloat16(greedy_equality: ModuleType, family: str, tmp_path: Path) -> None:
    """The first token is replaced by one that the reference likes less than most."""
    made, prompts = greedy_equality.FAMILIES[family], [[3, 1, 4, 1, 5], [9, 2, 6]]
    torch.manual_seed(1)
    made.make(tmp_path)
    model = made.load(tmp_path, "bfloat16")
    [setting, *_] = greedy_equality.BFLOAT16_SETTINGS
    runner = greedy_equality.load(tmp_path, prompts, 8, (setting,), "bfloat16")
    engine = EngineRouters(runner) if family == "mixtral" else None
    outputs, _ = greedy_equality.answer(engine or runner, prompts, 8, setting, None)
    references = [greedy_equality.reference(model, prompt, 8) for prompt in prompts]
    judge = Judge(model, references)
    for index, (expected, output) in enumerate(zip(references, outputs, strict=True)):
        assert judge.judge(index, output, engine).verdict != "different"
        wrong = [int(expected.logits[0].argsort()[100]), *output[1:]]
        assert judge.judge(index, wrong, engine).verdict == "different"
