"""Reference page of rollout phases: meanings, what ends each phase, and the diagrams of all strategies."""

from typing import get_args

from penstock.core.observed.rollout_phases import PHASES, Phase
from penstock.core.rollout.deadlines import REMOVAL_S
from penstock.core.rollout.phases import EVENTS, TRANSITIONS
from penstock.core.rollout.routes import GATEWAY_TIMEOUT_S
from penstock.core.spec.rollout import Strategy


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
    limits = {"removal_s": f"{REMOVAL_S:.0f}", "gateways_s": f"{GATEWAY_TIMEOUT_S:.0f}"}
    parts = [
        "# Rollout phases",
        "",
        "Generated from `operator/penstock/core/rollout/phase_reference.py` by `penstock docs`; do not edit.",
        "",
        "| phase | meaning | what ends it |",
        "| --- | --- | --- |",
        *(
            f"| `{phase}` | {row.meaning} | {row.end.format(**limits)} |"
            for phase, row in PHASES.items()
        ),
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
