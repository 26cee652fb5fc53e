"""Scenario files of adapters, and `penstock simulate` with them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

from penstock.cli.main import build
from penstock.sim import scenario
from penstock.sim.adapters.run import RULES
from penstock.sim.adapters.scenario import AdapterScenario
from penstock.sim.adapters.workload import requests_of

SHORT = {"kind": "lognormal", "median": 50, "p99": 100}
ADAPTERS = {"count": 20, "pods": 2, "slots": 4, "rps": 2, "prompt": SHORT, "output": SHORT}


def simulate(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build("simulate"), ["simulate", *arguments])
    return result.exit_code, result.output


def write(folder: Path, **adapters: Any) -> str:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"duration_s": 400, "adapters": ADAPTERS | adapters}))
    return str(path)


def read(**adapters: Any) -> AdapterScenario:
    content = {"name": "mine", "duration_s": 400, "adapters": ADAPTERS | adapters}
    return AdapterScenario.model_validate(content)


def test_rules_are_compared(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code, output = simulate(write(tmp_path), "--policy", "penstock,lru-random", "--json", str(out))
    assert code == 0, output
    rules = json.loads(out.read_text())["rules"]
    assert list(rules) == ["penstock", "lru-random"]
    assert rules["penstock"][0]["loads_per_min"] < rules["lru-random"][0]["loads_per_min"]
    assert "lru-random" in output
    assert "±" not in output


def test_jobs_change_nothing(tmp_path: Path) -> None:
    told = []
    for jobs in ("1", "2"):
        out = tmp_path / f"{jobs}.json"
        code, output = simulate(
            write(tmp_path), "--policy", "bound", "--seeds", "2", "--jobs", jobs, "--json", str(out)
        )
        assert code == 0, output
        assert "±" in output
        told.append(json.loads(out.read_text()))
    assert told[0] == told[1]


def test_without_a_policy_all_rules_are_compared(tmp_path: Path) -> None:
    code, output = simulate(write(tmp_path))
    assert code == 0, output
    assert all(rule in output for rule in RULES)


def test_the_list_has_scenarios_and_rules() -> None:
    _, output = simulate("--list")
    assert "adapters-zipf" in output
    assert "resident-first" in output
    assert "Dynamo's copies in proportion to demand" in output


@pytest.mark.parametrize("name", scenario.shipped("adapters"))
def test_shipped_scenarios_can_be_run(name: str) -> None:
    assert simulate(name, "--check") == (0, "")


def test_shares_are_the_popularity_of_each_adapter() -> None:
    adapters = read(count=None, shares=[8, 1, 1], rps=10).adapters
    drawn = [request.adapter for request in requests_of(adapters, 400, 0)]
    counts = sorted(drawn.count(adapter) / len(drawn) for adapter in set(drawn))
    assert counts == pytest.approx([0.1, 0.1, 0.8], abs=0.03)


@pytest.mark.parametrize(
    ("adapters", "said"),
    [
        ({"count": None}, "either count, with an exponent, or shares"),
        ({"shares": [1, 2]}, "either count, with an exponent, or shares"),
        ({"count": None, "shares": [1, 0]}, "shares must be above 0"),
        ({"load_s": [2, 1]}, "the shortest and the longest load time"),
        ({"rps": 0.1}, "raise rps or duration_s"),
        ({"profile": "none"}, "no profile 'none'"),
        ({"slot": 1}, "Extra inputs are not permitted"),
    ],
)
def test_what_is_impossible_is_refused(adapters: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        read(**adapters)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "static"), "no rule 'static' of adapter placement; rules: penstock, "),
        (("--ttft-s", "1"), "--ttft-s has no effect on a scenario of adapters"),
        (("--param", "a=1"), "--param has no effect on a scenario of adapters"),
    ],
)
def test_options_of_scaling_are_refused(arguments: tuple[str, ...], said: str) -> None:
    code, output = simulate("adapters-zipf", "--check", *arguments)
    assert code == 2
    assert said in output
