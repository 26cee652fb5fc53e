"""The workflows of continuous integration and of releases, and the changelog's section of a release."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.architecture.workflow_rules import broken_rules
from tests.support.tools.actionlint import ensure_actionlint

from penstock.chart.version import VERSION
from penstock.local.gobuild import GO_VERSION

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").iterdir())
CI = (ROOT / ".github/workflows/ci.yml").read_text()
CHECKOUT = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1"


def actionlint(*files: Path) -> subprocess.CompletedProcess[str]:
    """Lint workflows. Shell scripts are not: the result would depend on what is installed."""
    return subprocess.run(
        [ensure_actionlint(print), "-no-color", "-shellcheck=", "-pyflakes=", *files],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_actionlint_finds_nothing() -> None:
    done = actionlint(*WORKFLOWS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_actionlint_finds_an_unknown_name(tmp_path: Path) -> None:
    (tmp_path / "ci.yml").write_text(CI.replace("github.ref }}", "github.reference }}"))
    done = actionlint(tmp_path / "ci.yml")
    assert done.returncode == 1
    assert 'property "reference" is not defined' in done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_keep_the_rules(workflow: Path) -> None:
    assert broken_rules(workflow.read_text()) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("\npermissions: {}\n", "\n", "permissions: are not {} at the top"),
        ("\npermissions: {}\n", "\npermissions: read-all\n", "permissions: are not {} at the top"),
        ("concurrency:", "x-concurrency:", "concurrency: is missing"),
        ("  workflow_call:", "  pull_request_target:", "on: has pull_request_target"),
        ("    timeout-minutes: 20\n", "", "lint: timeout-minutes is missing"),
        (
            "persist-credentials: false",
            "fetch-depth: 1",
            "a checkout leaves the token in the folder",
        ),
        ("contents: read", "contents: write", "lint: may do more than read, also in pull requests"),
        ("lint verify", "lint ${{ secrets.X }}", "pull requests are given a secret or a token"),
        (CHECKOUT, "actions/checkout@v7", "actions/checkout@v7: has no full commit"),
        (" # v7.0.1", "", "has no full commit with a version behind it"),
        ("make lint verify", "make lint docs", "make docs: no such target"),
    ],
)
def test_a_broken_rule_is_named(old: str, new: str, problem: str) -> None:
    assert old in CI
    assert problem in "\n".join(broken_rules(CI.replace(old, new, 1)))


def test_a_job_of_a_release_says_what_it_may_do() -> None:
    release = (ROOT / ".github/workflows/release.yml").read_text()
    without = release.replace("    permissions:\n      contents: read\n    uses:", "    uses:")
    assert broken_rules(without) == ["test: permissions are missing"]


def test_tools_are_built_with_the_version_of_go_that_they_need() -> None:
    (step,) = (
        step for step in yaml.safe_load(CI)["jobs"]["test"]["steps"] if "go-version" in step.get("with", {})
    )  # fmt: skip
    assert GO_VERSION.startswith(f"{step['with']['go-version']}.")


def notes(version: str, tag: str = "") -> subprocess.CompletedProcess[str]:
    """Run `make notes` for a version. tag: that triggers the release, if not empty."""
    return subprocess.run(
        ["make", "--no-print-directory", "notes", f"VERSION={version}"],
        cwd=ROOT, env=os.environ | {"TAG": tag}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_notes_are_the_section_of_the_version() -> None:
    section = (ROOT / "CHANGELOG.md").read_text().split("\n## Unreleased\n")[1].split("\n## ")[0]
    assert notes("Unreleased").stdout.strip() == section.strip()


def test_a_version_without_a_section_is_not_released() -> None:
    done = notes("99.0.0", tag="v99.0.0")
    assert done.returncode != 0
    assert "CHANGELOG.md has no section 99.0.0" in done.stderr


@pytest.mark.parametrize("tag", ["v99.0.0", VERSION, "v$(VERSION)", f"v{VERSION}`id`"])
def test_a_tag_of_another_version_is_not_released(tag: str) -> None:
    done = notes(VERSION, tag)
    assert done.returncode != 0
    assert f"the tag has to be v{VERSION}" in done.stderr
