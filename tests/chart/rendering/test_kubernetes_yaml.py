"""YAML that kubectl reads: its parser in Go, which Helm has too, reads back what was written."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.support.tools.chart_tools import ensure_helm

from penstock.chart.rendering.kubernetes_yaml import dump_all

STRINGS = [
    "1e3", "12345e6", "+1E5", "-1e-3", "1.5e3", ".5e1", "1.", "08", "017", "0o17", "-0o7", "0b1", "0B1",
    "0x1F", "0X1F", "1_000", "1:30", "2024-01-01", "y", "Y", "n", "no", "On", "~", "Null", ".inf", ".NaN",
    "", "a: b # c", "- a", "<<", "=", "multi\nline", "v1.2.3", "500m", "ünï",
]  # fmt: skip
# The object as JSON in a string, which no other parser can take for something else.
TEMPLATE = 'read: {{ .Files.Get "written.yaml" | fromYaml | toJson | toJson }}'


@pytest.mark.slow
def test_a_parser_in_go_reads_strings_as_strings(tmp_path: Path) -> None:
    written = {
        "values": STRINGS,
        "keys": dict.fromkeys(STRINGS, "x"),
        "others": [1, 0, -5, 1.5, 1e30, True, None, {}, []],
    }
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: x, version: 0.0.1}")
    (tmp_path / "written.yaml").write_text(dump_all([written]))
    (tmp_path / "templates" / "read.yaml").write_text(TEMPLATE)
    helm = [ensure_helm(print), "template", tmp_path]
    done = subprocess.run(helm, capture_output=True, text=True, check=True)
    assert json.loads(yaml.safe_load(done.stdout)["read"]) == written


def test_plain_words_and_numbers_have_no_quotes() -> None:
    text = dump_all(
        [{"name": "namespace", "port": 8080, "ratio": 0.5, "image": "a.example/b:0.1.0"}]
    )
    assert text == "name: namespace\nport: 8080\nratio: 0.5\nimage: a.example/b:0.1.0\n"


def test_equal_parts_are_written_in_full() -> None:
    part = {"a": [1]}
    assert "&" not in dump_all([{"x": part, "y": part}])
