"""Tests of the offload policy: copy or recompute, cost estimates, and probes."""

import pytest

from penstock_engine.core.kv_cache.offload_policy import (
    PROBE_CHOICES,
    Choice,
    CopyCosts,
    OffloadPolicy,
    choose_on_eviction,
    choose_on_hit,
)
from penstock_engine.core.linear_fit import DECAY
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
        (0.001, 0.008, ("save", "cheaper"), ("restore", "cheaper")),  # equal cost with two copies
        (
            0.001,
            0.012,
            ("drop", "cheaper"),
            ("restore", "cheaper"),
        ),  # one copy pays off, two do not
        (0.001, 0.016, ("drop", "cheaper"), ("restore", "cheaper")),
        (0.001, 0.020, ("drop", "cheaper"), ("compute", "cheaper")),
    ],
)
def test_a_block_is_copied_if_that_costs_less_than_recomputing(
    token_s: float | None, copy_s: float | None, evicted: Choice, found: Choice
) -> None:
    costs = CopyCosts(token_s, copy_s)
    assert choose_on_eviction(costs, 16, is_probe=False) == evicted
    assert choose_on_hit(costs, 16, is_probe=False) == found


def test_a_probe_is_a_copy_that_seems_too_expensive() -> None:
    cheap, expensive = CopyCosts(0.001, 0.004), CopyCosts(0.001, 0.1)
    for costs, reason in ((cheap, "cheaper"), (expensive, "probe"), (CopyCosts(), "unmeasured")):
        assert choose_on_eviction(costs, 16, is_probe=True) == ("save", reason)
        assert choose_on_hit(costs, 16, is_probe=True) == ("restore", reason)


def policy_after(*copies: tuple[int, float]) -> OffloadPolicy:
    """Returns a policy that has observed steps of 0.01 s plus 0.001 s per token, and these copies."""
    policy = OffloadPolicy(block_tokens=16)
    for num_tokens in (1, 100):
        policy.observe_step(num_tokens, 0, 0.01 + 0.001 * num_tokens)
    for num_copies, duration_s in copies:
        policy.observe_step(1, num_copies, duration_s)
    return policy


def test_costs_are_unknown_before_steps_of_both_kinds() -> None:
    """A step with copies gives no cost until the time per token is known."""
    policy = OffloadPolicy(block_tokens=16)
    assert policy.costs == CopyCosts(None, None)
    policy.observe_step(1, 3, 1.0)
    assert policy.costs == CopyCosts(None, None)
    assert policy_after().costs.token_s == pytest.approx(0.001)
    assert policy_after().costs.copy_s is None


def test_the_cost_of_a_copy_is_the_time_that_tokens_do_not_explain() -> None:
    """The cost is a mean over steps, weighted by DECAY to the power of their age, and at least 0."""
    assert policy_after((4, 0.011 + 0.8)).costs.copy_s == pytest.approx(0.2)
    expected = (0.8 * DECAY + 0.3) / (4 * DECAY + 1)
    assert policy_after((4, 0.011 + 0.8), (1, 0.011 + 0.3)).costs.copy_s == pytest.approx(expected)
    assert policy_after((4, 0.001)).costs.copy_s == 0.0
    expected = (0.8 * DECAY + 0.0) / (4 * DECAY + 2)
    assert policy_after((4, 0.011 + 0.8), (2, 0.001)).costs.copy_s == pytest.approx(expected)


@pytest.mark.parametrize(("copy_s", "is_saved"), [(0.001, True), (1.0, False)])
def test_an_evicted_block_is_saved_if_that_is_cheaper(copy_s: float, is_saved: bool) -> None:
    policy = policy_after((1, 0.011 + copy_s))
    assert policy.should_save() is is_saved
    assert policy.choices == {("save" if is_saved else "drop", "cheaper"): 1}


def test_evictions_and_hits_count_towards_the_same_probe() -> None:
    """Dropped, recomputed and probed blocks count towards the next probe; cheap copies do not."""
    policy = policy_after((1, 0.011 + 0.012))  # one copy pays off, two do not
    made = [policy.should_save() for _ in range(PROBE_CHOICES)]
    assert made == [False] * (PROBE_CHOICES - 1) + [True]
    for _ in range(PROBE_CHOICES):
        policy.count(policy.choose_restore())
    assert not policy.should_save()
    assert policy.choices == {
        ("drop", "cheaper"): PROBE_CHOICES, ("save", "probe"): 1,
        ("restore", "cheaper"): PROBE_CHOICES,
    }  # fmt: skip


def test_expensive_copies_are_probed_regularly() -> None:
    policy = OffloadPolicy(block_tokens=16)
    for num_tokens in (1, 100):
        policy.observe_step(num_tokens, 0, 0.01 + 0.001 * num_tokens)
    policy.observe_step(1, 5, 0.011 + 5 * 0.1)
    assert policy.costs == CopyCosts(pytest.approx(0.001), pytest.approx(0.1))
    restored = []
    for _ in range(2 * PROBE_CHOICES):
        choice = policy.choose_restore()
        assert policy.choose_restore() == choice, "only counted choices count towards a probe"
        policy.count(choice)
        restored.append(choice.action == "restore")
    assert [index for index, is_restored in enumerate(restored) if is_restored] == [49, 99]
    assert policy.choices == {("compute", "cheaper"): 98, ("restore", "probe"): 2}


@pytest.mark.parametrize(("copy_s", "actions"), [(0.00001, {"save", "restore"}), (1.0, {"drop"})])
def test_the_scheduler_learns_whether_copies_pay_off(copy_s: float, actions: set[str]) -> None:
    """Three prompts take turns on a device with room for two. Step durations are simulated."""
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
    policy_after = dict(before.copy_choices)
    later = {c for c, count in scheduler.stats().copy_choices if count > policy_after.get(c, 0)}
    made = {choice.action for choice in later if choice.reason == "cheaper"}
    assert made - {"compute"} == actions  # a block saved by a probe may be found later


def duration_s(step: Step, copy_s: float) -> float:
    num_copies = len(step.block_copies.saves) + len(step.block_copies.restores)
    return 0.01 + 0.001 * step.num_tokens + copy_s * num_copies
