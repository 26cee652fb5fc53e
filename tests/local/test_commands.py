"""Commands: what they explain, the files that they write, and their completion in shells."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.local.api_server import STABLE, ApiServer, penstock


def test_explain_of_a_service_that_penstock_does_not_scale(api: ApiServer) -> None:
    external = {"scaling": {"mode": "External"}, "replicas": 1}
    api.answers = [(200, STABLE | {"spec": STABLE["spec"] | external})]  # type: ignore[operator]
    outcome = penstock("explain", "chat")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.startswith("spec.replicas sets the number")


def test_explain_without_rights_on_the_operator_prints_the_status(api: ApiServer) -> None:
    scaling = {
        "desiredReplicas": 2, "lastScaleTime": "2026-01-01T00:00:00Z", "message": "the load asks for it",
        "trail": [],
    }  # fmt: skip
    denied = {"message": 'leases "penstock-operator" is forbidden', "reason": "Forbidden"}
    service = STABLE | {"status": {**STABLE["status"], "scaling": scaling}}  # type: ignore[dict-item]
    api.answers = [(200, service), (403, denied)]
    outcome = penstock("explain", "chat")
    assert outcome.exit_code == 1
    assert "2 replicas since 2026-01-01T00:00:00Z: the load asks for it" in outcome.output
    assert "is forbidden" in outcome.output
    assert "docs/concepts/security.md" in outcome.output


def test_a_failed_recording_does_not_overwrite_an_earlier_file(
    api: ApiServer, tmp_path: Path
) -> None:
    earlier = tmp_path / "recording.jsonl"
    earlier.write_text("a week's work\n")
    api.answers = [(404, {"message": "no Lease"})]
    outcome = penstock("record", "chat", "-o", str(earlier))
    assert outcome.exit_code == 1
    assert earlier.read_text() == "a week's work\n"


@pytest.mark.parametrize(
    "words",
    [
        ["calibrate", "http://127.0.0.1:1", "-o"],
        ["record", "chat", "-o"],
        ["simulate", "--json"],
        ["simulate", "--plot"],
        ["simulate-rollout", "--rate=1", "--runs=1", "--hours=0.02", "--json"],
    ],
)
def test_an_unwritable_output_file_is_refused_before_the_work(
    words: list[str], api: ApiServer, tmp_path: Path
) -> None:
    for path, said in ((tmp_path / "missing" / "out", "missing"), (tmp_path, "folder")):
        outcome = penstock(*words, str(path))
        assert outcome.exit_code == 2
        assert said in re.sub(r"[\s│]", "", outcome.output)  # a long path is wrapped in a box
    assert api.paths == []


@pytest.mark.parametrize("text", ["TIMESTAMP,ContextTokens,GeneratedTokens\n"])
def test_an_empty_trace_fails(text: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    outcome = penstock("simulate", "--trace", str(trace), "--duration-s", "10")
    assert outcome.exit_code == 2
    assert "no request" in outcome.output


@pytest.mark.parametrize("words", [["explain", "chat"], ["record", "chat"]])
def test_a_stalled_service_without_a_decision_is_not_waited_for(
    words: list[str], api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stalled = {"type": "Stalled", "status": "True", "reason": "NoModel", "message": "no model"}
    api.answers = [(200, STABLE | {"status": {"conditions": [stalled]}})]
    outcome = penstock(*words)
    assert outcome.exit_code == 1
    assert "no decision is made on chat: no model" in outcome.stderr


def test_the_demo_outside_a_checkout_names_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = penstock("demo")
    assert outcome.exit_code == 2
    assert "--root" in outcome.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("penstock ro", ["rollout"]),
        ("penstock rollout pro", ["promote"]),
        ("penstock simulate --see", ["--seeds"]),
    ],
)
def test_a_shell_completes_commands_and_options(line: str, words: list[str]) -> None:
    """A command's own words are known although only one command is imported."""
    position = str(len(line.split()) - 1)
    asked = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": position}
    penstock = Path(sys.executable).with_name("penstock")
    done = subprocess.run(
        [penstock], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == words
