"""Tours that are programs: on Node, and those that need a Python environment of their own."""

import shutil
import subprocess
import sys
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from penstock.clients.machine.caches import cache_root
from penstock.local.cached_folder import ensure_folder

HERE = Path(__file__).parent
REQUIREMENTS = HERE.parents[1] / "requirements"
TIMEOUT_S = 240


def run(*command: str | Path, cwd: Path = HERE) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(requirements: Path, environment: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", environment, "--python", sys.executable)
    python = environment / "bin" / "python"
    run(uv, "pip", "sync", "--quiet", "--require-hashes", "--python", python, requirements)


@pytest.mark.parametrize(("library", "num_lines"), [("langchain", 7), ("litellm", 8)])
def test_python(server: Any, library: str, num_lines: int) -> None:
    """Exactly the pinned files, and never in the environment of everything else."""
    requirements = REQUIREMENTS / f"{library}.txt"
    digest = sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:16]
    environment = ensure_folder(
        cache_root() / library / digest, partial(install, requirements), print
    )
    python = environment / "bin" / "python"
    told = run(python, HERE / f"tour_{library}.py", server.url, server.key)
    assert len(told.splitlines()) == num_lines


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of the tours on Node."""
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(HERE / "node" / name, folder)
    run("npm", "ci", "--silent", cwd=folder)
    return folder


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node here")
@pytest.mark.parametrize(("tour", "num_lines"), [("tour.mjs", 8), ("tour_ai_sdk.mjs", 6)])
def test_node(server: Any, node_folder: Path, tour: str, num_lines: int) -> None:
    shutil.copy(HERE / "node" / tour, node_folder)
    told = run("node", tour, server.url, server.key, cwd=node_folder)
    assert len(told.splitlines()) == num_lines
