"""Alerts use only metrics that the processes of Penstock export, and labels that these have."""

import re

import pytest

from penstock.observability.alerts import groups
from penstock.observability.alerts.rules import Record
from penstock.observability.metrics import gateway, operator
from penstock_engine import metric_specs as engine

NAME = re.compile(r"\b(?:penstock|vllm)[_:][a-z0-9_:]+")
SELECTOR = re.compile(r"\b((?:penstock|vllm)[_:][a-z0-9_:]+)\{([^}]*)\}")
# Labels that a scrape configuration adds to the metrics of engines.
SCRAPED = {"service", "revision", "pod"}

RULES = [rule for group in groups.GROUPS for rule in group.rules]
LABELS = {
    **{spec.name: set(spec.label_names) for spec in (*operator.METRICS, *gateway.METRICS)},
    **{spec.name: {*spec.labels, *SCRAPED} for spec in (*engine.METRICS, *engine.ADAPTER_METRICS)},
    **{rule.name: {"service", "objective"} for rule in RULES if isinstance(rule, Record)},
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_metrics_and_labels_exist(rule):
    assert set(NAME.findall(rule.expr)) <= LABELS.keys()
    for name, selector in SELECTOR.findall(rule.expr):
        assert set(re.findall(r"(\w+)\s*[!=]", selector)) <= LABELS[name], name
