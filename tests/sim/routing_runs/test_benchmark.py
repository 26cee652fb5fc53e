"""Tables of benchmarks/simulator/routing.py, and a run of a case."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.simulator.routing import (
    cases,
    finished,
    record,
    report,
    report_errors,
    report_figure,
    report_recoveries,
    shared,
)

from penstock.sim.routing_runs.recovery import Recovery
from penstock.sim.routing_runs.run import Summary, run
from penstock.sim.routing_runs.scenario import Restart

SLOW = Summary(
    ttft_p50_s=1.0,
    ttft_p90_s=2.0,
    ttft_p99_s=3.0,
    ttft_mean_s=1.2,
    tpot_p90_s=0.05,
    tokens_per_s=1000.4,
    hit_rate=0.25,
    reusable_share=0.8,
    imbalance=1.5,
    requests=500,
    lost=1,
    error_p50=None,
    error_p95=None,
    recoveries=(),
)


def test_a_table_relates_each_rule_to_round_robin(capsys: pytest.CaptureFixture[str]) -> None:
    fast = replace(SLOW, ttft_p90_s=0.5)
    report("case", {"round-robin": {0: SLOW}, "session": {0: fast}})
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "case: 500 requests in the first run, 80 % of tokens reusable"
    assert lines[4:] == [
        "| round-robin | 1.00 | 2.00 | 3.00 | 50 | 1000 | 25.0 | 1.50 | 1 | 1.00 |",
        "| session | 1.00 | 0.50 | 3.00 | 50 | 1000 | 25.0 | 1.50 | 1 | 0.25 |",
    ]


def test_errors_are_those_of_rules_that_predict(capsys: pytest.CaptureFixture[str]) -> None:
    report_errors({"random": {0: SLOW}, "own": {0: replace(SLOW, error_p50=0.1, error_p95=0.4)}})
    text = "Error of the times that `own` predicts: p50 10 %, p95 40 %"
    assert capsys.readouterr().out.split("\n") == ["", text, ""]


def test_hits_around_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    found = Recovery(0.9, (0.2, 0.5, 0.95, 1.0, 1.0, 1.0), 2.5, 30)
    by_rule = {
        "session": {0: replace(SLOW, recoveries=(found,))},
        "random": {0: replace(SLOW, recoveries=(None,))},
    }
    report_recoveries(by_rule, [Restart(at_s=30.0)])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Around restart at 30 s, % of the reusable tokens that are hits:",
        "| rule | before | turn 1 | turn 2 | turn 3 | turn 4 | turns until 90 % |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| session | 90 | 20 | 50 | 95 | 100 | 2.50 |",
        "| random |  |  |  |  |  |  |",
    ]


def test_a_figure_has_a_column_for_each_case(capsys: pytest.CaptureFixture[str]) -> None:
    other = replace(SLOW, ttft_p90_s=4.0)
    report_figure(
        "TTFT p90, s", lambda s: s.ttft_p90_s, 1, {"x": {"a": {0: SLOW}}, "y": {"a": {0: other}}}
    )
    lines = ["", "| TTFT p90, s | x | y |", "| --- | --- | --- |", "| a | 2.0 | 4.0 |"]
    assert capsys.readouterr().out.splitlines() == lines


def test_a_file_has_the_runs_that_were_written(tmp_path: Path) -> None:
    found = replace(SLOW, recoveries=(None, Recovery(0.9, (0.2, 1.0), 2.5, 30)))
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(record(("chats", "session", 3), found)))
    assert finished(path) == {("chats", "session", 3): found}


def test_a_router_that_knows_prefixes_has_more_hits() -> None:
    small = shared(8.0).model_copy(update={"duration_s": 100.0})
    hits = {rule: run(small, rule, 0).hit_rate for rule in ("round-robin", "llm-d")}
    assert hits["llm-d"] > 2 * hits["round-robin"]


def test_cases_have_their_names() -> None:
    assert all(scenario.name == name for name, scenario in cases(Path("traces")).items())
