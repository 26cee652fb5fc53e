"""Each alert has a runbook with its four parts, which names only metrics that exist."""

import re
from pathlib import Path

import pytest
from tests.observability.test_names import LABELS

from penstock.observability.alerts import groups
from penstock.observability.alerts.services import UNROUTED_REASONS
from penstock.observability.metrics import gateway, operator
from penstock_engine.contract import metric_specs as engine

FOLDER = Path(__file__).parents[2] / "docs/runbooks"
ALERTS = sorted({alert.name for alert in groups.ALERTS})
PARTS = ["## Symptom", "## Evidence", "## Mitigation", "## Rollback"]
# A runbook names a histogram as a whole.
HISTOGRAMS = {
    spec.name
    for spec in (*operator.METRICS, *gateway.METRICS, *engine.METRICS)
    if spec.kind == "histogram"
}


@pytest.mark.parametrize("alert", ALERTS)
def test_a_runbook_has_its_parts(alert):
    text = (FOLDER / f"{alert}.md").read_text()
    assert re.findall(r"^## .*$", text, re.M) == PARTS
    assert text.startswith(f"# {alert}: ")


@pytest.mark.parametrize("alert", ALERTS)
def test_a_runbook_names_metrics_that_exist(alert):
    text = (FOLDER / f"{alert}.md").read_text()
    named = set(re.findall(r"\b(?:penstock_(?:operator|gateway)_|vllm:|penstock:)\w+", text))
    assert named, "no evidence"
    assert named <= LABELS.keys() | HISTOGRAMS


def test_the_index_lists_every_runbook():
    listed = re.findall(r"^\| \[(\w+)\]\(\1\.md\) ", (FOLDER / "README.md").read_text(), re.M)
    assert sorted(listed) == ALERTS
    assert sorted(path.stem for path in FOLDER.glob("*.md") if path.name != "README.md") == ALERTS


@pytest.mark.parametrize("alert", groups.ALERTS, ids=lambda alert: alert.name)
def test_the_url_of_an_alert_ends_with_its_page(alert):
    page = alert.body()["annotations"]["runbook_url"].rpartition("/")[2]
    assert (FOLDER / f"{page}.md").is_file()


def test_the_page_of_the_gateway_explains_each_reason_of_a_rejection():
    page = (FOLDER.parent / "concepts/gateway.md").read_text()
    _, _, rest = page.partition("| reason | the request was rejected because |\n")
    table, _, _ = rest.partition("\n\n")
    assert re.findall(r"^\| `(\w+)` \| ", table, re.M) == list(gateway.REJECTION.values)


def test_the_runbook_names_the_reasons_of_rejections_without_a_service():
    text = (FOLDER / "PenstockRequestsRejected.md").read_text()
    symptom = text.partition("## Evidence")[0]
    assert set(re.findall(r"`(\w+)`", symptom)) - {"service"} == set(UNROUTED_REASONS.split("|"))
