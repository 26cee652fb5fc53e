"""Tests of the draft length controller, its estimates, and the speculation settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_engine.core.linear_fit import DECAY
from penstock_engine.core.speculation.config import Method, SpeculationConfig
from penstock_engine.core.speculation.draft_length import (
    MIN_DRAFTS,
    PROBE_STEPS,
    DraftLengthController,
)
from penstock_engine.core.speculation.drafters import NgramDrafter, SuffixDrafter
from penstock_engine.core.speculation.planner import Speculation


def controller_of(
    chance: float, fixed_s: float, per_token_s: float, max_drafts: int = 8, num_judged: int = 400
) -> DraftLengthController:
    """Returns a controller that has observed step times and an acceptance rate of `chance`."""
    controller = DraftLengthController(max_drafts)
    for num_tokens in (1, 50):
        controller.observe_step(num_tokens, fixed_s + per_token_s * num_tokens)
    num_right = 0
    for number in range(1, num_judged + 1):
        is_right = round(number * chance) > num_right
        num_right += is_right
        controller.observe_acceptance(1, is_right)
    return controller


def best_of(chance: float, fixed_s: float, per_token_s: float, num_sequences: int) -> int:
    """Returns the number of drafts with the most tokens per second."""

    def tokens_per_s(drafts: int) -> float:
        tokens = sum(chance**i for i in range(drafts + 1))
        return tokens / (fixed_s + per_token_s * num_sequences * (1 + drafts))

    return max(range(9), key=tokens_per_s)


@pytest.mark.parametrize("num_sequences", [1, 3, 20])
@pytest.mark.parametrize("chance", [0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize(
    ("fixed_s", "per_token_s"), [(0.01, 0.001), (0.01, 0.0001), (0.002, 0.002)]
)
def test_the_number_of_drafts_maximizes_tokens_per_second(
    chance: float, fixed_s: float, per_token_s: float, num_sequences: int
) -> None:
    controller = controller_of(chance, fixed_s, per_token_s)
    right = judged = 0.0
    num_right = 0
    for number in range(1, 401):  # the acceptance rate in decaying sums
        is_right = round(number * chance) > num_right
        num_right += is_right
        judged, right = judged * DECAY + 1, right * DECAY + is_right
    expected = best_of(right / judged, fixed_s, per_token_s, num_sequences)
    assert controller.num_drafts(num_sequences) == expected


def test_the_cases_above_cover_different_numbers() -> None:
    chosen = {
        best_of(chance, fixed_s, per_token_s, n)
        for n in (1, 3, 20)
        for chance in (0.25, 0.5, 0.75, 1.0)
        for fixed_s, per_token_s in ((0.01, 0.001), (0.01, 0.0001), (0.002, 0.002))
    }
    assert {0, 1, 8} < chosen


def test_a_step_of_prompts_only_counts_as_one_sequence() -> None:
    chosen = [controller_of(0.75, 0.01, 0.002).num_drafts(n) for n in (0, 1, 4)]
    assert chosen[0] == chosen[1] > chosen[2]


@pytest.mark.parametrize(("num_judged", "expected"), [(15, 8), (20, 0)])
def test_few_drafts_are_not_enough_for_an_estimate(num_judged: int, expected: int) -> None:
    """All drafts are rejected. Because sums decay, it takes 18 drafts to count as MIN_DRAFTS."""
    assert MIN_DRAFTS == 16
    controller = controller_of(0.0, 0.01, 0.001, num_judged=num_judged)
    assert controller.num_drafts(1) == expected


@pytest.mark.parametrize(("num_right", "expected"), [(14, 8), (15, 0)])
def test_exactly_enough_drafts_give_an_estimate(num_right: int, expected: int) -> None:
    """The first rejected draft counts too. If step time is proportional to tokens, no draft pays."""
    controller = controller_of(0.0, 0.0, 0.001, num_judged=0)
    controller.observe_acceptance(32, num_right)
    assert controller.num_drafts(1) == expected


@pytest.mark.parametrize(
    ("num_drafts", "num_right", "chance"),
    [(4, 1, 1 / 2), (2, 1, 1 / 2), (8, 3, 3 / 4), (3, 3, 1.0)],
)
def test_drafts_after_the_first_rejected_one_do_not_count(
    num_drafts: int, num_right: int, chance: float
) -> None:
    """If one of four drafts is accepted, two count: that one and the first rejected one."""
    controller = DraftLengthController(8)
    for num_tokens in (1, 50):
        controller.observe_step(num_tokens, 0.01 + 0.001 * num_tokens)
    for _ in range(40):
        controller.observe_acceptance(num_drafts, num_right)
    assert controller.num_drafts(1) == best_of(chance, 0.01, 0.001, 1)
    chances = (1 / 4, 1 / 2, 3 / 4, 1.0)
    assert len({best_of(other, 0.01, 0.001, 1) for other in chances}) == 4


def test_one_step_in_fifty_is_a_probe() -> None:
    """A probe uses the maximum number of drafts although the controller would choose none."""
    controller = controller_of(0.0, 0.01, 0.001)
    chosen = [controller.num_drafts(1) for _ in range(2 * PROBE_STEPS)]
    assert [n for n, drafts in enumerate(chosen, 1) if drafts] == [PROBE_STEPS, 2 * PROBE_STEPS]
    assert {drafts for drafts in chosen if drafts} == {8}


def test_a_probe_has_no_drafts_while_all_steps_have_equal_size() -> None:
    controller = DraftLengthController(8)
    chosen = []
    for _ in range(2 * PROBE_STEPS):
        chosen.append(controller.num_drafts(1))
        controller.observe_step(9, 0.02)
        controller.observe_acceptance(8, 8)
    assert [n for n, drafts in enumerate(chosen, 1) if not drafts] == [PROBE_STEPS, 2 * PROBE_STEPS]
    assert {drafts for drafts in chosen if drafts} == {8}


def test_the_fewest_drafts_are_made_at_equal_rates() -> None:
    """All drafts are accepted, but step time is proportional to tokens: no draft gains anything."""
    assert controller_of(1.0, 0.0, 0.001).num_drafts(1) == 0


@given(st.integers(1, 32), st.integers(0, 32))
def test_the_number_of_drafts_is_at_most_the_configured_one(
    max_drafts: int, num_right: int
) -> None:
    controller = controller_of(1.0, 0.01, 0.0, max_drafts=max_drafts)
    controller.observe_acceptance(max_drafts, min(num_right, max_drafts))
    assert 0 <= controller.num_drafts(1) <= max_drafts


@pytest.mark.parametrize(
    "changes",
    [
        {"num_speculative_tokens": 1}, {"num_speculative_tokens": 32},
        {"prompt_lookup_min": 1, "prompt_lookup_max": 1},
        {"prompt_lookup_min": 16, "prompt_lookup_max": 16},
        {"suffix_decoding_min_token_prob": 1.0}, {"method": "draft_model", "model": "m"},
        {"method": "eagle", "model": "m"}, {"method": "suffix"},
    ],
    ids=str,
)  # fmt: skip
def test_settings_at_the_limits_are_allowed(changes: dict[str, object]) -> None:
    right: dict[str, object] = {"method": "ngram", "num_speculative_tokens": 3}
    assert SpeculationConfig(**(right | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_speculative_tokens": 0}, "from 1 to 32"),
        ({"num_speculative_tokens": 33}, "from 1 to 32"),
        ({"prompt_lookup_min": 0}, "<= 16 must hold"),
        ({"prompt_lookup_min": 4, "prompt_lookup_max": 3}, "<= 16 must hold"),
        ({"prompt_lookup_max": 17}, "<= 16 must hold"),
        ({"suffix_decoding_min_token_prob": 0.0}, "above 0 and at most 1"),
        ({"suffix_decoding_min_token_prob": 1.01}, "above 0 and at most 1"),
        ({"method": "eagle"}, "model must be given with method draft_model or eagle"),
        (
            {"method": "suffix", "model": "m"},
            "model must be given with method draft_model or eagle",
        ),
    ],
    ids=str,
)
def test_settings_beyond_the_limits_are_rejected(wrong: dict[str, object], message: str) -> None:
    right: dict[str, object] = {"method": "ngram", "num_speculative_tokens": 3}
    with pytest.raises(ValueError, match=message):
        SpeculationConfig(**(right | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "kind"),
    [("ngram", NgramDrafter), ("suffix", SuffixDrafter), ("eagle", None), ("draft_model", None)],
)
def test_each_method_has_its_drafter(method: Method, kind: type | None) -> None:
    """Methods whose drafts come from the runner have no drafter."""
    model = "m" if kind is None else None
    config = SpeculationConfig(method=method, num_speculative_tokens=3, model=model)
    drafter = Speculation(config).make_drafter("salt")
    assert drafter is None if kind is None else isinstance(drafter, kind)
    assert Speculation(config).controller.num_drafts(1) == 3


def test_drafters_use_the_settings() -> None:
    """n-grams have exactly two tokens; suffixes have the minimum probability, within one salt."""
    config = SpeculationConfig(
        method="ngram", num_speculative_tokens=3, prompt_lookup_min=2, prompt_lookup_max=2
    )
    ngrams = Speculation(config).make_drafter("")
    assert ngrams is not None
    texts = {
        (7, 1, 8, 1): (),
        (1, 2, 8, 1, 2): (8, 1, 2),
        (5, 1, 2, 6, 9, 1, 2, 7, 5, 1, 2): (7, 5, 1),
    }
    for text, drafts in texts.items():
        ngrams = Speculation(config).make_drafter("")
        assert ngrams is not None
        ngrams.index(text, 99)
        assert ngrams.propose(text, 3) == drafts
    config = SpeculationConfig(
        method="suffix", num_speculative_tokens=3, suffix_decoding_min_token_prob=0.6
    )
    speculation = Speculation(config)
    for salt, text, drafts in (
        ("a", (1, 2, 1, 3, 1), ()),
        ("b", (4, 5, 4), (5, 4, 5)),
        ("a", (4,), ()),
    ):
        suffixes = speculation.make_drafter(salt)
        assert suffixes is not None
        suffixes.index(text, 99)
        assert suffixes.propose(text, 3) == drafts
