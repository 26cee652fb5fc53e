"""A seeded part of benchmarks/engine/kernel_equality.py."""

import dataclasses
import itertools
from types import ModuleType

import pytest
from tests.support.engine.covering_array import pairs

PART = slice(0, None, 18)


def test_attention_equals_its_reference(kernel_equality: ModuleType, device: str) -> None:
    """Runs a sample of the campaign's combinations of shapes, lengths and types."""
    cases = kernel_equality.cases(seed=0, max_programs=65, max_reads=25_000)[PART]
    assert kernel_equality.campaign(cases, 0, device, seconds=float("inf")) == (len(cases), 0)


def test_every_possible_pair_of_values_occurs(kernel_equality: ModuleType) -> None:
    covered = set()
    for case in kernel_equality.cases(seed=3):
        assert kernel_equality.is_possible(dataclasses.asdict(case))
        covered |= pairs(dataclasses.asdict(case))
    factors = sorted(kernel_equality.FACTORS.items())
    for (first, values), (second, other_values) in itertools.combinations(factors, 2):
        for value, other in itertools.product(values, other_values):
            if kernel_equality.is_possible({first: value, second: other}):
                assert ((first, value), (second, other)) in covered


@pytest.mark.parametrize("mistake", ["a window one wider", "a later last key", "no scales"])
def test_a_wrong_result_is_detected(
    mistake: str, kernel_equality: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The campaign reports a difference for a deliberately wrong kernel."""
    case = kernel_equality.Case(
        heads=4, group=2, head_dim=64, block_size=8, length=60, batch=2, queries=1, window=30,
        softcap=0.0, dtype="float32", cache="int8",
    )  # fmt: skip
    assert kernel_equality.differences(case, 0, device) == []
    right = kernel_equality.paged_attention

    def mistaken_attention(query, cache, batch, scale, *, window, kv_scales, **options):  # type: ignore[no-untyped-def]
        match mistake:
            case "a window one wider":
                window += 1
            case "a later last key":
                batch = dataclasses.replace(batch, lengths=batch.lengths - 1)
            case "no scales":
                kv_scales = kv_scales.clone().fill_(0.01)
        return right(query, cache, batch, scale, window=window, kv_scales=kv_scales, **options)

    monkeypatch.setattr(kernel_equality, "paged_attention", mistaken_attention)
    (difference,) = kernel_equality.differences(case, 0, device)
    assert difference.startswith("the outputs, by")
