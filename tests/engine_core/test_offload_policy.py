"""Copies are made where they cost less than computing again, and their price stays known."""

import pytest

from penstock_engine.core.linear_fit import DECAY
from penstock_engine.core.offload_policy import (
    PROBE_CHOICES,
    Choice,
    CopyCosts,
    OffloadPolicy,
    choose_on_eviction,
    choose_on_hit,
)
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import SequenceOutput, Step


@pytest.mark.parametrize(
    ("token_s", "copy_s", "evicted", "found"),
    [
        (None, 0.001, ("save", "unmeasured"), ("restore", "unmeasured")),
        (0.001, None, ("save", "unmeasured"), ("restore", "unmeasured")),
        (0.001, 0.004, ("save", "cheaper"), ("restore", "cheaper")),
        (0.001, 0.008, ("save", "cheaper"), ("restore", "cheaper")),  # two cost as much
        (0.001, 0.012, ("drop", "cheaper"), ("restore", "cheaper")),  # one copy pays, two do not
        (0.001, 0.016, ("drop", "cheaper"), ("restore", "cheaper")),
        (0.001, 0.020, ("drop", "cheaper"), ("compute", "cheaper")),
    ],
)
def test_a_block_of_sixteen_tokens_is_copied_where_that_costs_less(
    token_s: float | None, copy_s: float | None, evicted: Choice, found: Choice
) -> None:
    prices = CopyCosts(token_s, copy_s)
    assert choose_on_eviction(prices, 16, is_probe=False) == evicted
    assert choose_on_hit(prices, 16, is_probe=False) == found


def test_a_probe_is_a_copy_that_seems_too_dear() -> None:
    cheap, dear = CopyCosts(0.001, 0.004), CopyCosts(0.001, 0.1)
    for prices, reason in ((cheap, "cheaper"), (dear, "probe"), (CopyCosts(), "unmeasured")):
        assert choose_on_eviction(prices, 16, is_probe=True) == ("save", reason)
        assert choose_on_hit(prices, 16, is_probe=True) == ("restore", reason)


def learnt(*copies: tuple[int, float]) -> OffloadPolicy:
    """After steps of 0.01 s and 0.001 s for each token, and steps of one token with copies."""
    copying = OffloadPolicy(block_tokens=16)
    for num_tokens in (1, 100):
        copying.observe_step(num_tokens, 0, 0.01 + 0.001 * num_tokens)
    for num_copies, duration_s in copies:
        copying.observe_step(1, num_copies, duration_s)
    return copying


def test_nothing_is_known_before_steps_of_both_kinds() -> None:
    """A step with copies gives no price until the time for its tokens is known."""
    copying = OffloadPolicy(block_tokens=16)
    assert copying.costs == CopyCosts(None, None)
    copying.observe_step(1, 3, 1.0)
    assert copying.costs == CopyCosts(None, None)
    assert learnt().costs.token_s == pytest.approx(0.001)
    assert learnt().costs.copy_s is None


def test_the_price_of_a_copy_is_what_tokens_do_not_explain() -> None:
    """The price is a mean over steps, weighted by DECAY to the power of their age, and at least 0."""
    assert learnt((4, 0.011 + 0.8)).costs.copy_s == pytest.approx(0.2)
    expected = (0.8 * DECAY + 0.3) / (4 * DECAY + 1)
    assert learnt((4, 0.011 + 0.8), (1, 0.011 + 0.3)).costs.copy_s == pytest.approx(expected)
    assert learnt((4, 0.001)).costs.copy_s == 0.0
    expected = (0.8 * DECAY + 0.0) / (4 * DECAY + 2)
    assert learnt((4, 0.011 + 0.8), (2, 0.001)).costs.copy_s == pytest.approx(expected)


@pytest.mark.parametrize(("copy_s", "is_saved"), [(0.001, True), (1.0, False)])
def test_what_is_given_up_is_saved_where_that_is_cheaper(copy_s: float, is_saved: bool) -> None:
    copying = learnt((1, 0.011 + copy_s))
    assert copying.should_save() is is_saved
    assert copying.choices == {("save" if is_saved else "drop", "cheaper"): 1}


def test_evictions_and_finds_bring_the_same_probe_nearer() -> None:
    """Dropped, recomputed and probed blocks count towards the next probe; cheap copies do not."""
    copying = learnt((1, 0.011 + 0.012))  # worth one copy, and not two
    made = [copying.should_save() for _ in range(PROBE_CHOICES)]
    assert made == [False] * (PROBE_CHOICES - 1) + [True]
    for _ in range(PROBE_CHOICES):
        copying.count(copying.choose_restore())
    assert not copying.should_save()
    assert copying.choices == {
        ("drop", "cheaper"): PROBE_CHOICES, ("save", "probe"): 1,
        ("restore", "cheaper"): PROBE_CHOICES,
    }  # fmt: skip


def test_what_is_too_dear_is_tried_again_now_and_then() -> None:
    copying = OffloadPolicy(block_tokens=16)
    for num_tokens in (1, 100):
        copying.observe_step(num_tokens, 0, 0.01 + 0.001 * num_tokens)
    copying.observe_step(1, 5, 0.011 + 5 * 0.1)
    assert copying.costs == CopyCosts(pytest.approx(0.001), pytest.approx(0.1))
    restored = []
    for _ in range(2 * PROBE_CHOICES):
        choice = copying.choose_restore()
        assert copying.choose_restore() == choice, "only what is counted brings a probe nearer"
        copying.count(choice)
        restored.append(choice.action == "restore")
    assert [index for index, is_restored in enumerate(restored) if is_restored] == [49, 99]
    assert copying.choices == {("compute", "cheaper"): 98, ("restore", "probe"): 2}


@pytest.mark.parametrize(("copy_s", "actions"), [(0.00001, {"save", "restore"}), (1.0, {"drop"})])
def test_the_scheduler_learns_which_it_is(copy_s: float, actions: set[str]) -> None:
    """Three prompts in turn on a device with room for two, with steps of known duration."""
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=1, max_num_batched_tokens=40, max_model_len=64, block_size=4,
            num_blocks=17, num_host_blocks=20,
        )
    )  # fmt: skip
    now_s, before = 0.0, scheduler.stats()
    for turn in range(30):
        prompt = [turn % 3] * 32
        one = Sequence(str(turn), prompt, SamplingParams(max_tokens=3), frozenset(), now_s)
        assert scheduler.add(one) is None
        if turn == 15:
            before = scheduler.stats()
        while (step := scheduler.schedule(now_s)) is not None:
            now_s += duration_s(step, copy_s)
            scheduler.complete(
                step, {s.request_id: SequenceOutput((1,)) for s in step.sequences}, now_s
            )
            scheduler.check()
    learnt = dict(before.copy_choices)
    later = {c for c, count in scheduler.stats().copy_choices if count > learnt.get(c, 0)}
    made = {choice.action for choice in later if choice.reason == "cheaper"}
    assert made - {"compute"} == actions  # what was saved as a probe may be found


def duration_s(step: Step, copy_s: float) -> float:
    num_copies = len(step.block_copies.saves) + len(step.block_copies.restores)
    return 0.01 + 0.001 * step.num_tokens + copy_s * num_copies
