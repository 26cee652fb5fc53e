"""Layout of the repository: folders, import rules, import costs, and the contents of files."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def tracked_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "lint-imports", "--no-cache"],
        cwd=tree, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": f"{tree}/operator:{tree}/engine", "PATH": str(BIN)},
    )  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of both packages and the contracts, free to be broken."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "operator", tmp_path / "operator", ignore=ignore)
    shutil.copytree(ROOT / "engine", tmp_path / "engine", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("operator/penstock/core/scaling/by_kv/rule.py", "import time", "penstock.core is pure"),
        ("operator/penstock/core/routing/pick.py", "import random", "penstock.core is pure"),
        (
            "operator/penstock/core/reconcile/plan.py",
            "import kubernetes.aio",
            "penstock.core is pure",
        ),
        ("operator/penstock/core/reconcile/status.py", "import logging", "penstock.core is pure"),
        ("engine/penstock_engine/core/scheduler.py", "import torch", "engine core is pure"),
        ("engine/penstock_engine/core/kv_cache/blocks.py", "import socket", "engine core is pure"),
        (
            "engine/penstock_engine/execution/runner.py",
            "import penstock.core.scaling.by_kv.rule",
            "The engine knows nothing of the control plane",
        ),
        (
            "operator/penstock/core/routing/pick.py",
            "import penstock.clients.pods.scrape",
            "Control plane layers",
        ),
        (
            "operator/penstock/api/modelroute/kind.py",
            "import penstock.api.inferenceservice.status",
            "Layers of the API",
        ),
        (
            "operator/penstock/chart/gateway/objects.py",
            "import penstock.chart.operator.objects",
            "Layers of the chart",
        ),
        (
            "operator/penstock/cli/output/terminal.py",
            "import penstock.cli.options.logs",
            "Layers of the commands",
        ),
        (
            "operator/penstock/cli/scaling/explain.py",
            "import penstock.cli.rollout.status",
            "Layers of the commands",
        ),
        (
            "operator/penstock/clients/kubernetes/resources.py",
            "import penstock.clients.pods.exposition",
            "Layers of the clients",
        ),
        (
            "operator/penstock/clients/machine/clock.py",
            "import penstock.clients.kubernetes.resources",
            "Layers of the clients",
        ),
        (
            "operator/penstock/gateway/snapshots/builder.py",
            "import penstock.gateway.selection.model_routing",
            "Layers of the gateway",
        ),
        (
            "operator/penstock/gateway/stats/registry.py",
            "import penstock.gateway.upstream.upstream",
            "Layers of the gateway",
        ),
        (
            "engine/penstock_engine/contract/wire.py",
            "import prometheus_client",
            "engine core is pure",
        ),
        (
            "operator/penstock/controller/canary/judge.py",
            "import penstock.controller.scaling.scaler",
            "Layers of the controller",
        ),
        (
            "operator/penstock/controller/routes/statuses.py",
            "import penstock.controller.services.plan_writer",
            "Layers of the controller",
        ),
        (
            "engine/penstock_engine/layers/__init__.py",
            "import penstock_engine.server",
            "Engine layers",
        ),
        (
            "engine/penstock_engine/files/file_access.py",
            "import penstock_engine.memory.preflight",
            "Engine layers",
        ),
        (
            "engine/penstock_engine/quantization/scheme.py",
            "import penstock_engine.quantization.rounding",
            "No circles of modules",
        ),
        (
            "engine/penstock_engine/server/transport/errors.py",
            "import penstock_engine.server.handlers.state",
            "Layers of the engine's server",
        ),
        (
            "engine/penstock_engine/server/requests/bodies.py",
            "import penstock_engine.server.adapters.registry",
            "Layers of the engine's server",
        ),
        (
            "operator/penstock/gateway/app.py",
            "import penstock_engine.options.config",
            "The control plane imports what it shares with the engine",
        ),
        (
            "operator/penstock/gateway/app.py",
            "import penstock_engine.core.scheduler",
            "The control plane imports what it shares with the engine",
        ),
        (
            "operator/penstock/gateway/__init__.py",
            "import kopf",
            "The gateway needs neither Kopf nor torch",
        ),
    ],
)
def test_a_forbidden_import_breaks_its_contract(
    tree: Path, module: str, line: str, contract: str
) -> None:
    path = tree / module
    path.write_text(f"{path.read_text()}\n{line}\n")

    result = lint_imports(tree)

    assert result.returncode != 0
    assert re.search(rf"^{re.escape(contract)} BROKEN", result.stdout, re.MULTILINE), result.stdout


def test_the_tree_as_it_stands_keeps_every_contract() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("penstock_engine.core.scheduler", ["torch", "numpy", "transformers"]),
        ("penstock_engine.contract.metric_specs", ["torch", "numpy", "prometheus_client"]),
        ("penstock_engine.contract.wire", ["torch", "numpy", "prometheus_client"]),
        ("penstock_engine.memory.preflight", ["torch", "transformers"]),
        ("penstock.core.scaling.by_kv.rule", ["pydantic", "kubernetes", "kopf"]),
        ("penstock.gateway.app", ["kopf", "torch"]),
        ("penstock.controller.app", ["torch", "transformers"]),
        ("penstock.cli.main", ["kubernetes", "kopf", "torch", "aiohttp", "psutil"]),
    ],
)
def test_importing_one_module_does_not_load_the_rest(module: str, absent: list[str]) -> None:
    code = f"import sys, {module}; print([m for m in {absent!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_no_package_marker_shadows_a_standard_module_or_a_test_folder() -> None:
    """`operator/__init__.py` on the path would replace the standard library's `operator`."""
    files = [f.relative_to(ROOT) for f in tracked_files() if f.name == "__init__.py"]
    wrong = [f for f in files if f.parts[0] in ("tests", "e2e") or f.parent == Path("operator")]
    assert wrong == []


def test_no_module_is_called_utils() -> None:
    names = {"utils", "util", "helpers", "misc", "common"}
    assert [f for f in tracked_files() if names & {f.stem, *f.relative_to(ROOT).parts[:-1]}] == []


def test_no_file_names_a_package_host() -> None:
    hosts = re.compile(
        "|".join(["files" + r"\.pythonhosted", "pypi" + r"\.org", "proxy" + r"\.golang"])
    )
    wrong = [
        f.relative_to(ROOT)
        for f in tracked_files()
        if f.suffix not in {".png"} and hosts.search(f.read_text(errors="ignore"))
    ]
    assert wrong == []


def test_models_are_loaded_without_pickle_or_remote_code() -> None:
    forbidden = re.compile(
        r"\b(import pickle|torch\.load|cloudpickle|dill|trust_remote_code=True)\b|(?<![.\w])(eval|exec)\("
    )
    sources = [*(ROOT / "operator").rglob("*.py"), *(ROOT / "engine").rglob("*.py")]
    wrong = [
        f"{f.relative_to(ROOT)}: {m.group()}"
        for f in sources
        for m in [forbidden.search(f.read_text())]
        if m
    ]
    assert wrong == []
