"""Rules of the workflows in .github/workflows that actionlint does not know."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
# These triggers run a workflow of the default branch, with its secrets, on behalf of a pull request.
REFUSED_TRIGGERS = {"pull_request_target", "workflow_run", "issue_comment"}
TOKENS = re.compile(r"\bsecrets\b|\bgithub\.token\b")


def broken_rules(text: str) -> list[str]:
    """Return the rules that a workflow breaks, a line each. text: its YAML."""
    return [*_broken_by_workflow(text), *_unpinned_actions(text), *_unknown_targets(text)]


def _broken_by_workflow(text: str) -> Iterator[str]:
    workflow = yaml.safe_load(text)
    triggers = set(workflow[True])  # YAML 1.1 reads the key `on` as true
    if workflow.get("permissions") != {}:
        yield "permissions: are not {} at the top"
    if "concurrency" not in workflow:
        yield "concurrency: is missing"
    yield from (f"on: has {name}" for name in sorted(triggers & REFUSED_TRIGGERS))
    for name, job in workflow["jobs"].items():
        yield from (f"{name}: {problem}" for problem in _broken_by_job(job))
        if "pull_request" in triggers and job.get("permissions") != {"contents": "read"}:
            yield f"{name}: may do more than read, also in pull requests"
    if "pull_request" in triggers and TOKENS.search(text):
        yield "pull requests are given a secret or a token"


def _broken_by_job(job: dict[str, Any]) -> Iterator[str]:
    if "permissions" not in job:
        yield "permissions are missing"
    if "uses" not in job and "timeout-minutes" not in job:
        yield "timeout-minutes is missing"
    for step in job.get("steps", []):
        checks_out = step.get("uses", "").startswith("actions/checkout@")
        if checks_out and step.get("with", {}).get("persist-credentials") is not False:
            yield "a checkout leaves the token in the folder"


def _unpinned_actions(text: str) -> Iterator[str]:
    for used in re.findall(r"^\s*(?:- )?uses: (.+)$", text, re.MULTILINE):
        if not used.startswith("./") and not PINNED.fullmatch(used):
            yield f"{used}: has no full commit with a version behind it"


def _unknown_targets(text: str) -> Iterator[str]:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for arguments in re.findall(r"\bmake ((?:[\w-]+ ?)+)", text.partition("\njobs:")[2]):
        yield from (
            f"make {name}: no such target"
            for name in arguments.split()
            if name not in phony.split()
        )
