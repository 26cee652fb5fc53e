"""A seeded part of benchmarks/greedy_equality.py: every setting, fewer and shorter prompts."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "greedy_equality.py"


@pytest.fixture(scope="module")
def greedy_equality() -> ModuleType:
    spec = importlib.util.spec_from_file_location("greedy_equality", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up while it is being executed.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "greedy_equality", module)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_output_equals_transformers(greedy_equality: ModuleType, family: str) -> None:
    """Token for token, at any concurrency and chunk size, preempted or not, cached or not."""
    results = list(
        greedy_equality.campaign(
            (family,),
            greedy_equality.SETTINGS,
            num_prompts=40,
            longest=400,
            new_tokens=24,
            seed=1,
        )
    )
    print(*results, sep="\n")
    assert len(results) == 8
    for result in results:
        assert result.num_different == 0
        assert result.num_equal >= 38
        assert (result.prefix_hits_tokens > 0) == result.setting.prefix_caching
    crowded = [r for r in results if r.setting.concurrency == 16]
    assert all(r.preemptions > 0 for r in crowded)


def test_a_wrong_token_is_not_excused(greedy_equality: ModuleType) -> None:
    """The campaign can fail: only a near tie of the reference excuses a difference."""
    expected = greedy_equality.Reference(prompt=[1], tokens=[5, 6], gaps=[1.0, 1e-5])
    assert greedy_equality.compare(expected, [5, 6]) == "equal"
    assert greedy_equality.compare(expected, [5, 7]) == "excused"
    assert greedy_equality.compare(expected, [4, 6]) == "different"
