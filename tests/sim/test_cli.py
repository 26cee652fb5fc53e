"""Output of `penstock simulate` that scripts rely on."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import build

FIGURES = ["attainment", "mean_replicas", "gpu_hours", "shed", "failed", "reversals"]


def simulate(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build("simulate"), ["simulate", *arguments])
    return result.exit_code, result.output


@pytest.fixture
def small(make_scenario, tmp_path: Path) -> str:
    path = tmp_path / "small.json"
    path.write_text(make_scenario(duration_s=60).model_dump_json())
    return str(path)


def test_the_json_has_each_figure_with_its_mean_and_seeds(small: str, tmp_path: Path) -> None:
    path, picture = tmp_path / "out.json", tmp_path / "out.png"
    code, output = simulate(
        small, "--policy", "hpa-queue", "--seeds", "3", "--json", str(path), "--plot", str(picture)
    )
    assert code == 0, output
    told = json.loads(path.read_text())
    for figure in FIGURES:
        estimate = told[figure]
        assert len(estimate["per_seed"]) == 3
        assert estimate["mean"] == pytest.approx(sum(estimate["per_seed"]) / 3)
        assert estimate["ci95"] >= 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_as_many_jobs_as_wanted_give_the_same(small: str, tmp_path: Path) -> None:
    told = []
    for jobs in ("1", "2"):
        path = tmp_path / f"{jobs}.json"
        code, output = simulate(small, "--seeds", "2", "--jobs", jobs, "--json", str(path))
        assert code == 0, output
        told.append(json.loads(path.read_text())["attainment"])
    assert told[0] == told[1]


def test_a_trace_is_run_as_a_service(tmp_path: Path) -> None:
    trace, path = tmp_path / "trace.csv", tmp_path / "out.json"
    rows = "\n".join(f"2023-11-16 18:00:{i:02}.0000000,500,20" for i in range(60))
    trace.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}\n")
    code, output = simulate(
        "--trace", str(trace), "--format", "azure", "--rate-scale", "2", "--startup-s", "30",
        "--ttft-s", "1", "--tpot-s", "0.1", "--profile", "llama-3.1-8b-a100", "--max-replicas", "2",
        "--admission", "fcfs", "--param", "replicas=2", "--json", str(path),
    )  # fmt: skip
    assert code == 0, output
    told = json.loads(path.read_text())
    assert told["arrivals"]["mean"] == 120
    assert told["scenario"]["services"][0]["admission"] == "fcfs"


def test_the_list_names_scenarios_and_policies() -> None:
    code, output = simulate("--list")
    assert code == 0
    assert "llm-d-ramp" in output
    assert "static" in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["llm-d-ramp", "--policy", "nobody"], "no policy 'nobody'"),
        (["llm-d-ramp", "--param", "speed=1"], "has no knob 'speed'"),
        (["llm-d-ramp", "--profile", "none"], "no profile 'none'"),
        (["nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(arguments: list[str], said: str) -> None:
    code, output = simulate(*arguments)
    assert code == 2
    assert said in output


def test_each_wrong_field_of_a_scenario_is_named(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("duration_s: 1\nservices: [{name: a, ttft_s: x, tpot_s: 1, workload: {}}]\n")
    code, output = simulate(str(file))
    assert code == 2
    assert "services.0.ttft_s: Input should be a valid number" in output
    assert "pydantic" not in output + simulate("llm-d-ramp", "--profile", "none")[1]


def test_arguments_are_checked_alone() -> None:
    assert simulate("llm-d-ramp", "--check") == (0, "")
    assert simulate("llm-d-ramp", "--check", "--param", "speed=1")[0] == 2


@pytest.mark.parametrize(("seeds", "has_interval"), [("1", False), ("2", True)])
def test_an_interval_is_printed_only_of_several_seeds(
    small: str, seeds: str, has_interval: bool
) -> None:
    code, output = simulate(small, "--policy", "hpa-queue", "--seeds", seeds)
    assert code == 0, output
    assert ("±" in output) == has_interval


@pytest.mark.parametrize("arguments", [("nosuch",), ()])
def test_without_a_known_scenario_those_there_are_are_listed(arguments: tuple[str, ...]) -> None:
    code, output = simulate(*arguments)
    assert code == 2
    assert "scenarios: closed-loop, " in output
