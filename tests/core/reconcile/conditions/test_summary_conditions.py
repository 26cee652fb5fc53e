"""Reconciling and Stalled: never both True, with a deadline where there is no rollback."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.core.reconcile.one_revision import (
    FORBIDDEN,
    NOW_S,
    REVISION,
    deployment,
    observed_in,
    pod,
    preflight,
)
from tests.core.reconcile.one_revision import SPEC as ONE

import penstock.core.reconcile
from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.children import ObservedState
from penstock.core.observed.rollout_phases import Phase
from penstock.core.reconcile.condition_types import MEANINGS, REASON_PATTERN, REASONS, page
from penstock.core.reconcile.conditions import Condition, conditions
from penstock.core.reconcile.plan import plan
from penstock.core.spec.rollout import Strategy

# A blue/green rollout that waits for a manual promotion.
SPEC = replace(ONE, rollout=replace(ONE.rollout, promotion="Manual"))
DEADLINE_S = SPEC.rollout.progress_deadline_s
PULLING = replace(
    preflight("", "Pending"), name="chat-check", trouble=("ImagePullBackOff", "no such image")
)


def tree(observed: ObservedState, after_s: float = 1.0) -> dict[str, Condition]:
    planned = plan(SPEC, observed, "image", NOW_S + after_s)
    found = {c.type: c for c in conditions(SPEC, observed, planned, None)}
    assert not found["Reconciling"].status == found["Stalled"].status == "True"
    return found


def said(found: dict[str, Condition]) -> list[tuple[str, str]]:
    return [
        (found[kind].status, found[kind].reason) for kind in ("Ready", "Reconciling", "Stalled")
    ]


UNDER_WAY = ("False", "NotStalled")


def test_a_service_that_no_operator_has_seen_yet_is_reconciled_at_once() -> None:
    assert said(tree(ObservedState())) == [
        ("False", "PreflightPending"),
        ("True", "Starting"),
        UNDER_WAY,
    ]


def test_a_first_revision_that_does_not_come_up_is_stalled_after_its_deadline() -> None:
    observed = observed_in(PULLING)
    before = tree(observed, DEADLINE_S - 1)
    assert said(before) == [("False", "ImagePullBackOff"), ("True", "Starting"), UNDER_WAY]
    assert "no such image" in before["Reconciling"].message
    after = tree(observed, DEADLINE_S)
    assert said(after)[1:] == [("False", "Stalled"), ("True", "ProgressDeadlineExceeded")]
    assert after["Stalled"].message == (
        f"no progress within {DEADLINE_S:.0f} s: chat-check: ImagePullBackOff, no such image"
    )
    assert plan(SPEC, observed, "image", NOW_S + 1).wake_s == DEADLINE_S - 1


def test_a_pod_that_comes_up_after_the_deadline_takes_the_condition_back() -> None:
    late = NOW_S + DEADLINE_S + 5
    one = replace(pod("a"), ready_at=timestamp(late))
    starting = observed_in(deployment(replicas=2), preflight(), pod("b", ready=False))
    assert tree(starting, DEADLINE_S)["Stalled"].reason == "ProgressDeadlineExceeded"
    found = tree(replace(starting, pods=(preflight(), one)), DEADLINE_S + 6)
    assert (found["Stalled"].status, found["RolledOut"].status) == ("False", "True")


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen", "Rolling"])
def test_a_phase_with_a_rollback_has_no_deadline_of_its_own(strategy: Strategy) -> None:
    phase: Phase = "Replacing" if strategy == "Rolling" else "Starting"
    old = (deployment("old"), pod("b", "old"))
    observed = observed_in(
        *old, preflight("", "Pending"), phase=phase, strategy=strategy, stable="old"
    )
    planned = plan(SPEC, observed, "image", NOW_S + DEADLINE_S)
    assert planned.overdue == ""
    assert planned.rollout.phase == ("RollingBack" if strategy == "Rolling" else "Discarding")


@pytest.mark.parametrize(
    ("phase", "strategy", "expected"),
    [
        ("Waiting", "BlueGreen", ("True", "AwaitingPromotion")),
        ("Paused", "Canary", ("True", "AwaitingPromotion")),
        ("Judging", "Canary", ("True", "Judging")),
        ("Stable", "Canary", ("False", "Settled")),
    ],
)
def test_the_phase_is_the_reason_while_the_stable_revision_answers(
    phase: Phase, strategy: Strategy, expected: tuple[str, str]
) -> None:
    stable = REVISION if phase == "Stable" else "old"
    pods = (deployment("old"), pod("b", "old"), deployment(), preflight(), pod("a"))
    found = tree(observed_in(*pods, phase=phase, strategy=strategy, stable=stable))
    assert said(found) == [("True", "Ready"), expected, UNDER_WAY]


def test_causes_of_a_coming_revision_do_not_explain_an_outage_of_the_stable_one() -> None:
    observed = observed_in(
        deployment("old"), pod("b", "old", ready=False), deployment(), preflight(),
        replace(pod("a", ready=False), trouble=("ErrImagePull", "no")),
        phase="Starting", strategy="BlueGreen", stable="old",
    )  # fmt: skip
    found = tree(observed)
    assert (found["WorkloadReady"].reason, found["Ready"].reason) == (
        "ErrImagePull",
        "NoEngineReady",
    )


def test_a_refusal_stalls_a_service_that_answers() -> None:
    pods = (deployment("old"), pod("b", "old"), preflight())
    observed = observed_in(
        *pods, phase="Starting", strategy="BlueGreen", stable="old", refusals={REVISION: FORBIDDEN}
    )
    assert said(tree(observed)) == [
        ("True", "Ready"),
        ("False", "Stalled"),
        ("True", "PodForbidden"),
    ]


def test_a_service_whose_quota_is_full_is_stalled_only_after_the_deadline() -> None:
    observed = observed_in(preflight(), refusals={REVISION: ("QuotaExceeded", "it is full")})
    found = tree(observed)
    assert found["Reconciling"].message.endswith("; it is full")
    assert said(found)[1:] == [("True", "Starting"), ("False", "NotStalled")]
    made = plan(SPEC, observed, "image", NOW_S + SPEC.rollout.progress_deadline_s)
    assert made.overdue == "no progress within 600 s: QuotaExceeded: it is full"


def literals() -> set[str]:
    """CamelCase words in the modules that make conditions."""
    folder = Path(penstock.core.reconcile.__file__).parent
    text = "".join(
        (folder / f"{name}.py").read_text()
        for name in ("conditions", "summary_conditions", "name_conflict")
    )
    return set(re.findall(r'"([A-Z][a-z]+(?:[A-Z][a-z]+)*)"', text))


NOT_REASONS = {"True", "False", "External", "Metric", "Unreadable", "Job", "Pending"}


def test_every_reason_is_documented() -> None:
    assert literals() - NOT_REASONS - set(MEANINGS) <= REASONS.keys()
    assert all(re.match(REASON_PATTERN, reason) for reason in REASONS)
    phases: Any = Phase.__args__  # type: ignore[attr-defined]
    assert set(phases) <= REASONS.keys()
    assert all(f"`{name}`" in page() for name in (*MEANINGS, *REASONS))
