"""Mirroring: faults reject the canary, and enough time with copies lets it go on."""

import pytest

from penstock.core.canary.arm import NO_REQUESTS
from penstock.core.canary.mirror import MirrorState, judge_mirror
from penstock.core.canary.verdict import Abort, Continue, MirrorPassed
from penstock.core.spec.canary import MirrorSpec

SPEC = MirrorSpec(percent=10, duration_s=60.0)


def run(blocks):
    """The last verdict, and how many blocks it took."""
    state, verdict, count = MirrorState(), None, 0
    for count, block in enumerate(blocks, start=1):  # noqa: B007 - the last one is returned
        verdict, state = judge_mirror(SPEC, state, block)
        if not isinstance(verdict, Continue):
            break
    return verdict, count


def test_one_without_fault_is_shown_for_its_time(make):
    verdict, count = run([make.block(make.arm(5), make.arm(5))] * 20)
    assert (type(verdict), count) == (MirrorPassed, 6)
    assert verdict.reason == "30 copies in 60 s showed no fault"


def test_time_without_copies_is_not_counted(make):
    silent, loud = make.block(NO_REQUESTS, make.arm(5)), make.block(make.arm(5), make.arm(5))
    assert run([silent] * 50)[0].reason.startswith("0 copies in 0 s")
    assert run([silent, loud] * 20)[1] == 12


@pytest.mark.parametrize(
    ("canary", "control", "said"),
    [
        ({"empty": 5}, {}, "are empty"),
        ({"errors": 5}, {}, "failed in one block"),
        ({"empty": 5}, {"empty": 5}, None),
        ({"errors": 5}, {"errors": 5}, None),
    ],
)
def test_faults_that_the_control_has_not(make, canary, control, said):
    verdict, _ = run([make.block(make.arm(5, **canary), make.arm(5, **control))] * 6)
    assert isinstance(verdict, Abort) == (said is not None)
    assert said is None or said in verdict.reason


@pytest.mark.parametrize("fault", ["crash_loops", "out_of_memory", "nan_outputs"])
def test_what_engines_tell_rejects_without_a_single_copy(make, fault):
    verdict, count = run([make.block(NO_REQUESTS, NO_REQUESTS, **{fault: 1})])
    assert isinstance(verdict, Abort)
    assert count == 1


def test_slow_answers_are_not_judged(make):
    slow = make.block(make.arm(10, ttft=[9.0] * 10), make.arm(10, ttft=[0.1] * 10))
    assert isinstance(run([slow] * 6)[0], MirrorPassed)
