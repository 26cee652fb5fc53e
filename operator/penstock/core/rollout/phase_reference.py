"""Reference page of rollout phases: meanings, what ends each phase, and the diagrams of all strategies."""

from collections.abc import Mapping
from typing import get_args

from penstock.core.observed.rollout_phases import PHASES, Phase
from penstock.core.rollout.deadlines import REMOVAL_S
from penstock.core.rollout.phases import EVENTS, TRANSITIONS
from penstock.core.rollout.routes import GATEWAY_TIMEOUT_S
from penstock.core.spec.rollout import Strategy

# What ends each phase.
ENDS: Mapping[Phase, str] = {
    "Stable": "the spec asks for another revision",
    "Stopping": (
        f"the old pods are gone; `Stalled` if they are not {REMOVAL_S:.0f} s after their grace period"
    ),
    "Starting": (
        "the pods are ready, else `progressDeadline` rejects the revision; `Stalled` if there is no other "
        "revision to return to"
    ),
    "Mirroring": "`mirror.duration` of time with copies, a fault, or a user",
    "Waiting": "a user promotes or aborts the revision",
    "Judging": "evidence, a fault, `maxDuration` of time with requests, or a user",
    "Paused": "a user resumes or aborts the canary, or a fault rejects it",
    "Growing": "the pods are ready, else `progressDeadline` rejects the revision",
    "Replacing": "the pods are ready, else `progressDeadline` rejects the revision",
    "Promoting": (
        f"gateways apply the traffic, at most {GATEWAY_TIMEOUT_S:.0f} s; BlueGreen: also `scaleDownDelay`"
    ),
    "Draining": (
        f"the pods are gone, or {REMOVAL_S:.0f} s after their grace period. If the spec asks for another "
        "revision, its rollout does not wait for pods that are terminating"
    ),
    "RollingBack": (
        f"gateways apply the traffic, at most {GATEWAY_TIMEOUT_S:.0f} s, once a stable pod is ready; "
        "Rolling: stable pods are ready; `Stalled` if none gets ready within `progressDeadline`"
    ),
    "Discarding": "as Draining",
    "Rejected": "the spec asks for another revision, or a user resumes",
}


def diagram(strategy: Strategy) -> str:
    """The table as a Mermaid state diagram; events of the same transition share an arrow."""
    ways: dict[tuple[Phase, Phase], list[str]] = {}
    for (phase, event), after in TRANSITIONS[strategy].items():
        ways.setdefault((phase, after), []).append(event)
    arrows = [
        f"    {phase} --> {after}: {' / '.join(events)}" for (phase, after), events in ways.items()
    ]
    return "\n".join(["stateDiagram-v2", "    [*] --> Stable", *arrows])


def page() -> str:
    """The Markdown reference page: the meanings of phases and events, and the diagrams of all strategies."""
    parts = [
        "# Rollout phases",
        "",
        "Generated from `operator/penstock/core/rollout/phase_reference.py` by `penstock docs`; do not edit.",
        "",
        "| phase | meaning | what ends it |",
        "| --- | --- | --- |",
        *(f"| `{phase}` | {row.meaning} | {ENDS[phase]} |" for phase, row in PHASES.items()),
        "",
        "The condition `RolledOut` names what a phase waits for, and `Reconciling` what keeps new pods from",
        "becoming ready. `kubectl penstock rollout status` prints both.",
        "",
        "| event | meaning |",
        "| --- | --- |",
        *(f"| `{event}` | {meaning} |" for event, meaning in EVENTS.items()),
    ]
    for strategy in get_args(Strategy):
        parts += ["", f"## {strategy}", "", "```mermaid", diagram(strategy), "```"]
    return "\n".join(parts) + "\n"
