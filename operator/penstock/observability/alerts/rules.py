"""Recording and alert rules of Prometheus, and the text of a rule file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from penstock.observability.alerts.conditions import Condition

# critical: users notice it now. warning: a person should look at it today.
Severity = Literal["critical", "warning"]

# Base URL of the runbooks. The chart replaces it by the value monitoring.prometheusRule.runbooksUrl.
RUNBOOKS = "https://penstock.dev/runbooks"

# Longest time without a leader, and so without its series of services, that alerts ignore.
LEADERLESS = "5m"


def latest(gauge: str, by: str = "service") -> str:
    """PromQL of a leader's gauge, by labels: its value, or the last one while there is no leader.

    Without the last value, a change of the leader would resolve an alert, or restart its hold time. gauge:
    a selector.
    """
    last = f"last_over_time({gauge}[{LEADERLESS}])"
    return f"(max by ({by}) ({gauge}) or max by ({by}) ({last}))"


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule: a series that Prometheus computes from others."""

    name: str
    expr: str

    def body(self) -> dict[str, Any]:
        """The rule as an entry of a rule file."""
        return {"record": self.name, "expr": self.expr}


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert rule."""

    name: str  # name of the alert and of its runbook
    severity: Severity
    condition: Condition
    hold_s: int  # time for which the condition must hold, in seconds
    summary: str  # one line with the labels of the alert
    description: str  # what it means for users and what to look at first
    # More labels, which tell alerts of one name apart
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def expr(self) -> str:
        return self.condition.expr

    def body(self) -> dict[str, Any]:
        """The rule as an entry of a rule file."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": f"{self.hold_s}s",
            "labels": {"severity": self.severity, **self.labels},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{RUNBOOKS}/{self.name}",
            },
        }


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together, in order."""

    name: str
    rules: Sequence[Record | Alert]

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Alert))


def rule_file(groups: Sequence[Group]) -> str:
    """The text of a rule file."""
    document = {
        "groups": [
            {"name": group.name, "rules": [rule.body() for rule in group.rules]} for group in groups
        ]
    }
    return yaml.safe_dump(document, sort_keys=False, width=1000)
