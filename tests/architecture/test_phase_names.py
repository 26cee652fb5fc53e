"""Code asks the table of a rollout's phases for their properties, and does not compare their names."""

import ast
from pathlib import Path
from typing import get_args

from penstock.core.observed.rollout_phases import SETTLED_PHASES, Phase

OPERATOR = Path(__file__).parents[2] / "operator" / "penstock"
# Folders in which a phase is that of a pod.
PHASES_OF_PODS = ("sim", "core/scaling", "controller/scaling", "local")


def compared_phases(source: str) -> set[str]:
    """Names of phases that the code compares with a phase, without those in which no rollout goes on."""
    comparisons = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare) and "phase" in ast.unparse(node)
    ]
    constants = {
        node.value
        for comparison in comparisons
        for node in ast.walk(comparison)
        if isinstance(node, ast.Constant)
    }
    return constants & (set(get_args(Phase)) - set(SETTLED_PHASES))


def test_a_comparison_is_found() -> None:
    source = 'a = x.phase == "Judging" or x.phase in ("Paused", "Stable") or x.state == "Waiting"'
    assert compared_phases(source) == {"Judging", "Paused"}


def test_only_the_events_of_a_first_revision_go_by_the_name_of_a_phase() -> None:
    found = {}
    for path in OPERATOR.rglob("*.py"):
        name = path.relative_to(OPERATOR).as_posix()
        if not name.startswith(PHASES_OF_PODS) and (phases := compared_phases(path.read_text())):
            found[name] = phases
    assert found == {"core/reconcile/status_events.py": {"Starting"}}
