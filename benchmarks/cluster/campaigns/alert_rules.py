"""State of the alert and recording rules in a Prometheus, and the number of series that they use."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx
from benchmarks.cluster.campaigns.dashboard_queries import Query, Span, evaluate

from penstock.observability.alerts import groups
from penstock.observability.alerts.rules import Alert, Record

# Longest `offset` in the rules. Quantities are evaluated for this long after the run too, so that those with
# an offset read metrics of the run.
LONGEST_OFFSET_S = 600


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Results of one rule.

    health: `ok`, or why Prometheus could not evaluate it. series: number of series of each quantity that the
    rule compares with a limit or records.
    """

    name: str
    health: str
    series: Mapping[str, int]

    @property
    def problems(self) -> list[str]:
        failure = [f"{self.name}: {self.health}"] if self.health != "ok" else []
        empty = [each for each, count in self.series.items() if not count]
        return failure + [f"{self.name}: {each} has no series" for each in empty]


def rule_results(prometheus: httpx.Client, span: Span) -> list[RuleResult]:
    """The results of all rules. Raises ValueError if Prometheus has loaded another number of them."""
    answer = prometheus.get("/api/v1/rules")
    answer.raise_for_status()
    loaded = {group["name"]: group["rules"] for group in answer.json()["data"]["groups"]}
    span = replace(span, end_s=span.end_s + LONGEST_OFFSET_S)
    return [
        RuleResult(
            rule.name,
            _health(rule, state),
            {each: len(evaluate(prometheus, Query(each, ""), span)) for each in _quantities(rule)},
        )
        for group in groups.GROUPS
        for rule, state in zip(group.rules, loaded[group.name], strict=True)
    ]


def _quantities(rule: Alert | Record) -> tuple[str, ...]:
    return rule.condition.quantities if isinstance(rule, Alert) else (rule.expr,)


def _health(rule: Alert | Record, state: Mapping[str, Any]) -> str:
    """`ok`, or why Prometheus could not evaluate the rule. state: the rule in its API's response."""
    if state["name"] != rule.name:
        return f"Prometheus has {state['name']} in its place"
    return str(state.get("lastError") or state["health"])
