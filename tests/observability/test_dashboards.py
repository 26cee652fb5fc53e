"""Dashboards are complete, their expressions parse, and the files in the tree are the generated ones."""

import json
import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from tests.observability.dashboard_panels import BOARDS, BUILT_IN, VARIABLE, expressions, panels
from tests.support.tools import prometheus

from penstock.core.scaling.rule import DecisionCode
from penstock.observability import dashboards
from penstock.observability.dashboards import scaling
from penstock.observability.dashboards.files import files

ROOT = Path(__file__).parents[2]
EXPRESSIONS = list(expressions())


def test_files_are_the_generated_ones():
    folder = ROOT / "dashboards"
    assert {path.name: path.read_text() for path in folder.iterdir()} == files()


def test_the_chart_ships_the_same_dashboards():
    folder = ROOT / "charts" / "penstock" / "files" / "dashboards"
    assert {path.name: json.loads(path.read_text()) for path in folder.iterdir()} == BOARDS


def test_promtool_accepts_every_expression(tmp_path):
    rules = [
        {"record": f"expression:{number}", "expr": each.evaluable}
        for number, each in enumerate(EXPRESSIONS)
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    promtool = prometheus.ensure("promtool", print)
    done = subprocess.run(
        [promtool, "check", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", BOARDS)
def test_grafanas_types_read_the_file_without_a_loss(name):
    """Except annotations, whose fields for Prometheus the SDK does not know."""
    register_default_plugins()
    read = json.dumps(Dashboard.from_json(BOARDS[name]), cls=JSONEncoder)
    assert json.loads(read) | {"annotations": None} == BOARDS[name] | {"annotations": None}


@pytest.mark.parametrize("name", BOARDS)
def test_panels_say_what_they_show(name):
    titles = [panel["title"] for panel in panels(BOARDS[name])]
    for panel in panels(BOARDS[name]):
        title = panel["title"]
        sections = {row["title"] for row in BOARDS[name]["panels"] if row["type"] == "row"}
        assert titles.count(title) == 1, title
        assert panel["description"].endswith("."), title
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all(target["legendFormat"] for target in panel["targets"]), title
        assert title not in sections, title


@pytest.mark.parametrize("name", BOARDS)
def test_every_dashboard_marks_scale_steps_rollouts_and_changes_of_the_spec(name):
    marks = [mark["name"] for mark in BOARDS[name]["annotations"]["list"]]
    assert marks == ["Scale steps", "Rollouts", "Spec changes"]


@pytest.mark.parametrize("name", BOARDS)
def test_variables_are_defined_before_they_are_used(name):
    defined = set()
    for variable in BOARDS[name]["templating"]["list"]:
        query = variable["query"]
        text = query["query"] if isinstance(query, dict) else query
        assert set(VARIABLE.findall(text)) <= defined, variable["name"]
        defined.add(variable["name"])
    built_in = {VARIABLE.match(each)[1] for each in BUILT_IN}
    for expression in (each for each in EXPRESSIONS if each.where.startswith(f"{name} ")):
        assert set(VARIABLE.findall(expression.text)) <= defined | built_in, expression


def test_panels_do_not_overlap():
    for name, board in BOARDS.items():
        cells = [
            (x, y)
            for panel in board["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells)), name
        assert max(x for x, _ in cells) < 24, name


def test_no_module_writes_a_metric_name_out():
    for folder in dashboards.__path__:
        for path in Path(folder).glob("*.py"):
            assert not re.search(r"penstock_(?!engine)|vllm:|penstock:", path.read_text()), path


def test_every_reason_of_a_decision_has_words():
    assert set(get_args(DecisionCode)) == scaling.REASONS.keys()
