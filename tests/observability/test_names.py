"""Alerts and dashboards use only metrics, labels and values of labels that Penstock exports."""

import re

import pytest
from tests.observability.dashboard_panels import BOARDS, expressions

from penstock.observability.alerts import groups
from penstock.observability.alerts.rules import Record
from penstock.observability.dashboards.promql import labels_of
from penstock.observability.metrics import batch, gateway, operator
from penstock_engine.contract import feature_metric_specs as features
from penstock_engine.contract import metric_specs as engine

NAME = re.compile(r"\b(?:penstock|vllm)[_:][a-z0-9_:]+")
SELECTOR = re.compile(r"\b((?:penstock|vllm)[_:][a-z0-9_:]+)\{([^}]*)\}")
GROUPING = re.compile(r"\b(?:by|on|group_left) \(([^)]*)\)")

RULES = [rule for group in groups.GROUPS for rule in group.rules]
SPECS = (
    *operator.METRICS, *gateway.METRICS, *batch.METRICS, *engine.METRICS, *features.ADAPTER_METRICS,
    *features.OFFLOADING_METRICS, *features.CPU_METRICS, *features.GPU_METRICS, *features.SPECULATION_METRICS,
    *features.FETCH_METRICS, *features.KV_EVENT_METRICS,
)  # fmt: skip
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
RECORDED = {rule.name for rule in RULES if isinstance(rule, Record)}
LABELS = {
    **{
        spec.name + suffix: labels_of(spec) | ({"le"} if suffix == "_bucket" else set())
        for spec in SPECS
        for suffix in SUFFIXES[spec.kind]
    },
    **{name: {"service", "objective"} for name in RECORDED},
}
# Labels of operator and gateway whose values are all listed.
VALUES = {
    (sample, label.name): label.values
    for spec in (*operator.METRICS, *gateway.METRICS, *batch.METRICS)
    for sample in spec.samples
    for label in spec.labels
    if isinstance(label.values, tuple)
}
EXPRESSIONS = list(expressions())


def check(expression):
    """Check that names, matched labels and their values, and labels of groups exist."""
    names = set(NAME.findall(expression))
    assert names
    assert names <= LABELS.keys()
    for name, selector in SELECTOR.findall(expression):
        assert set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\"", selector)) <= LABELS[name], name
        for label, value in re.findall(r'(\w+)\s*[!=~]+"([^"]*)"', selector):
            if (listed := VALUES.get((name, label))) is not None:
                assert set(value.split("|")) <= {*listed}, (name, label)
    known = set.union(*(LABELS[name] for name in names))
    assert groups_of(expression) <= known


def groups_of(expression):
    lists = (text.split(",") for text in GROUPING.findall(expression))
    return {label.strip() for labels in lists for label in labels} - {""}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_alerts_use_what_exists(rule):
    check(rule.expr)


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_dashboards_use_what_exists(expression):
    check(expression.text)
    recorded = (LABELS[name] for name in NAME.findall(expression.text) if name in RECORDED)
    shown = set(re.findall(r"\{\{(\w+)\}\}", expression.legend))
    assert shown <= groups_of(expression.text).union(*recorded)


@pytest.mark.parametrize("name", BOARDS)
def test_variables_list_labels_that_exist(name):
    for variable in BOARDS[name]["templating"]["list"]:
        if variable["type"] == "query":
            metric, selector, label = re.fullmatch(
                r"label_values\(([\w:]+)(\{.*\})?, (\w+)\)", variable["query"]["query"]
            ).groups()
            matched = set(re.findall(r"(\w+)=~", selector or ""))
            assert {label, *matched} <= LABELS[metric]
