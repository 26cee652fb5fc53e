"""Every phase ends or says what it waits for, whatever does not happen."""

from typing import get_args

import pytest
from tests.core.rollout.rollout_inputs import (
    NEW,
    OBEYED,
    OLD,
    OTHER,
    SINCE_S,
    TO_NEW,
    TO_OLD,
    deployment,
    inputs,
    pod,
    state,
)

from penstock.core.canary.verdict import Extend
from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.rollout_phases import (
    PHASES,
    PHASES_THAT_USERS_END,
    SETTLED_PHASES,
    Phase,
)
from penstock.core.rollout.events import detect_events
from penstock.core.rollout.phases import TRANSITIONS
from penstock.core.rollout.waiting import overdue, waiting_for

# Phases that last while there are no requests, with the verdict that says so.
PHASES_THAT_REQUESTS_END = ("Mirroring", "Judging")
NO_REQUESTS = Extend("no requests", 0.1)
# Longer than every deadline of the default settings, in seconds.
FOR_EVER_S = 1e6
STUCK = (
    deployment(NEW),
    deployment(OLD),
    pod(NEW, "n", ready=False),
    pod(OLD, "o", ready=False, is_ending=True),
    pod(NEW, "m", ready=False, is_ending=True),
)
# The traffic has moved, the traffic has not, and only the new revision serves.
STUCK_WORLDS = (
    {"children": STUCK, "traffic": ()},
    {"children": STUCK, "traffic": TO_OLD},
    {"children": (*STUCK, pod(NEW, "r")), "traffic": TO_NEW},
)


def phases_with_strategies():
    return sorted(
        {(strategy, phase) for strategy, table in TRANSITIONS.items() for phase, _ in table}
    )


@pytest.mark.parametrize("world", STUCK_WORLDS)
@pytest.mark.parametrize(("strategy", "phase"), phases_with_strategies())
def test_no_phase_waits_for_ever_without_a_word(strategy, phase, world):
    of = state(phase, strategy, **({"revision": None} if phase == "Draining" else {}))
    wanted = OLD if phase == "Draining" else NEW
    given = inputs(
        *world["children"], wanted=wanted, after_s=FOR_EVER_S, traffic=world["traffic"],
        rollout={"promotion": "Manual"}, said={"verdict": NO_REQUESTS},
    )  # fmt: skip
    ended = any((phase, event) in TRANSITIONS[strategy] for event, _ in detect_events(of, given))
    is_by_user = phase in (*SETTLED_PHASES, *PHASES_THAT_USERS_END)
    is_told = phase in PHASES_THAT_REQUESTS_END and waiting_for(of, given) == "no requests"
    assert ended or overdue(of, given) or is_by_user or is_told


def test_the_reference_says_of_each_phase_what_ends_it():
    assert list(PHASES) == list(get_args(Phase))


KEPT_UNTIL = f"pods of revision {OLD} are kept for a rollback until {timestamp(SINCE_S + 300)}"


@pytest.mark.parametrize(
    ("of", "given", "words"),
    [
        (state("Starting"), inputs(), ""),
        (state("Growing"), inputs(pod(ready=False, trouble=("E", "m"))), "p: E: m"),
        (state("Replacing"), inputs(stored_refusal=("QuotaExceeded", "full")), "QuotaExceeded: full"),
        (state("Judging"), inputs(said={"verdict": NO_REQUESTS}), "no requests"),
        (state("Judging"), inputs(refusals={NEW: ("QuotaExceeded", "full")}), "QuotaExceeded: full"),
        (state("Promoting", "BlueGreen"), inputs(pod(), said={"applied_generations": OBEYED}), KEPT_UNTIL),
        (state("RollingBack"), inputs(pod()),
         f"no pod of revision {OLD} is ready, so {NEW} keeps its traffic"),
        (state("RollingBack", "Rolling"), inputs(pod(OLD)), f"1 of 2 pods of revision {OLD} are ready"),
        (state("Stopping", "Recreate"), inputs(pod(OLD, "o", is_ending=True)), "o still exists"),
        (state("Stopping", "Recreate"), inputs(pod(OLD, "o", phase="Failed")), ""),  # evicted
        (state("Discarding"), inputs(pod(NEW, "n", is_ending=True)), "n still exists"),
        (state("Discarding"), inputs(pod(NEW, "n", is_ending=True), wanted=OTHER), ""),
        (state("Discarding"), inputs(deployment(), pod(NEW, "n"), wanted=OTHER),
         f"{NEW}- and 1 more still exist"),
    ],
)  # fmt: skip
def test_what_a_phase_waits_for(of, given, words):
    assert waiting_for(of, given) == words
