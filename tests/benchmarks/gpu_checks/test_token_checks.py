"""Tests of the checks of greedy tokens on a GPU: how tokens are judged, and that a fault is found."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.gpu.greedy.judging import judge_tokens, summarize
from benchmarks.gpu.greedy.subject import Reference, Subject, Variant, rounding_kv
from tests.support.engine.verdicts import Judgement
from tests.support.tools.checkout_program import run_python

PROMPT = [1, 2]


class FixedLogits:
    """A model whose logits do not depend on the tokens."""

    device = "cpu"

    def __init__(self, rows: list[list[float]]) -> None:
        self._rows = torch.tensor(rows)

    def __call__(self, ids: torch.Tensor, **options: Any) -> SimpleNamespace:
        logits = torch.zeros(1, ids.shape[1], self._rows.shape[1])
        logits[0, len(PROMPT) - 1 : -1] = self._rows
        return SimpleNamespace(logits=logits)


def verdicts(rounded: list[list[float]], exact: list[list[float]], tokens: list[int]) -> list[str]:
    reference = Reference(FixedLogits(rounded), FixedLogits(exact))
    return [judgement.verdict for judgement in judge_tokens(reference, PROMPT, tokens)]


def test_each_token_is_judged_also_after_one_that_differs() -> None:
    """The units in the last place of 8 are 1/16; the error of the reference is 0.1."""
    rounded = [[8.0, 7.9, 7.85, 7.0]] * 4
    exact = [[8.1, 7.9, 7.85, 7.0]] * 4
    assert verdicts(rounded, exact, [3, 0, 1, 2]) == ["different", "equal", "tie", "noise"]


def test_the_error_counts_at_the_token_or_on_average() -> None:
    rounded = [[8.0, 7.7], [8.0, 7.7]]
    assert verdicts(rounded, [[8.0, 7.7], [8.4, 7.7]], [1, 1]) == ["noise", "noise"]
    assert verdicts(rounded, [[8.0, 7.7], [8.2, 7.7]], [1, 1]) == ["different", "noise"]


def test_what_is_not_a_number_excuses_nothing() -> None:
    nan = float("nan")
    assert verdicts([[nan, 1.0]], [[0.0, 1.0]], [0]) == ["different"]


def test_the_summary_fails_by_a_different_token_or_by_none_at_all() -> None:
    good, bad = Judgement("equal"), Judgement("different", 0.5, 0.1)
    excused = Judgement("noise", 0.1, 0.2)
    assert summarize([[good, excused]])["ok"]
    assert summarize([[good, excused]])["largest_excused_gap"] == 0.1
    record = summarize([[good], [good, bad, bad]])
    assert (record["ok"], record["equal"], record["different"]) == (False, 2, 2)
    assert record["difference"] == "answer 1: token 1 has a gap of 0.5, the noise is 0.1"
    assert not summarize([])["ok"]


@pytest.mark.parametrize("variant", [Variant(), Variant("int8"), Variant(adapter="first")])
def test_references_differ_by_what_the_engine_changes(variant: Variant) -> None:
    """The rounded model has the exact one's weights, which differ from the checkpoint's if they should."""
    subject = Subject("qwen3", "cpu", 0, is_small=True)
    plain = subject.reference(Variant()).exact.get_parameter("model.layers.0.mlp.down_proj.weight")
    made = subject.reference(variant)
    exact = made.exact.get_parameter("model.layers.0.mlp.down_proj.weight")
    rounded = made.rounded.get_parameter("model.layers.0.mlp.down_proj.weight")
    assert torch.equal(rounded, exact.bfloat16())
    assert torch.equal(exact, plain) == (variant == Variant())


def test_rounded_keys_and_values_change_the_logits_and_end_with_the_block() -> None:
    model = Subject("qwen3", "cpu", 0, is_small=True).reference(Variant()).exact
    ids = torch.arange(12)[None]
    with torch.inference_mode():
        plain = model(ids).logits
        with rounding_kv("int8"):
            rounded = model(ids).logits
        assert 0 < (rounded - plain).abs().max() < 0.2
        assert torch.equal(model(ids).logits, plain)


FAULT = """
from benchmarks.gpu.bars import summary
from benchmarks.gpu.child import records_of
from benchmarks.gpu.context import Context
from benchmarks.gpu.token_checks import items
import penstock_engine.layers.paged_attention as layer
right = layer.paged_attention
if IS_FAULTY:
    layer.paged_attention = lambda *args, **options: right(*args, **options | {"window": 6})
context = Context("cpu", 0, 1e18)
chosen = [item for item in items(context) if item.name == "qwen3, batched"]
print(summary(list(records_of("b", chosen, context, 0)), sys.stdout))
"""


@pytest.mark.parametrize("is_faulty", [False, True])
def test_a_fault_in_attention_fails_the_run(is_faulty: bool) -> None:
    """Attention that sees the last tokens only, which the checks have to find."""
    printed = run_python(f"IS_FAULTY = {is_faulty}\n{FAULT}", TRITON_INTERPRET="1").splitlines()
    assert printed[-1] == str(int(is_faulty))
    assert any(line.startswith("FAILED b qwen3, batched: ") for line in printed) == is_faulty


COMPILE = """
torch.cuda.is_available = lambda: True  # so that the kernels are handed to Triton
from benchmarks.gpu import token_checks
from benchmarks.gpu.compile_ahead import compiling_only
from benchmarks.gpu.context import Context
from tests.support.engine.named_device import NamedDevice
from triton import knobs
token_checks.MODES = token_checks.MODES[1:2]
engines = token_checks.Engines(Context("cpu", 0, 1e18))
subject = engines.subjects["qwen3"]
seen = [set(), set()]
empty = torch.empty

def note(repr, key, **others):
    seen[part].add((repr, str(key)))
    return True

with compiling_only(NamedDevice(90, 132, 227)):
    for part in range(2):
        hook = knobs.runtime.jit_cache_hook = note
        with token_checks.computing_nothing():
            runner = token_checks.make_runner(subject, token_checks.MODES[0], "cpu", 4)
            token_checks.answer(subject, token_checks.MODES[0], runner, 4)
print(len(seen[0]) > 5, seen[0] == seen[1], torch.empty is empty)
"""


def test_answers_can_be_computed_to_compile_alone() -> None:
    assert run_python(COMPILE, TRITON_INTERPRET="0").strip().endswith("True True True")
