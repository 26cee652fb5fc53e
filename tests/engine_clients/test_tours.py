"""Tours that run as programs of their own: litellm in its own environment, OpenAI's on Node."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TIMEOUT_S = 240


def run(*command: str | Path, cwd: Path = HERE) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_litellm(engine: Any, tmp_path: Path) -> None:
    """Exactly the pinned files, and never in the environment of everything else."""
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", tmp_path / "env", "--python", sys.executable)
    python = tmp_path / "env" / "bin" / "python"
    pins = ROOT / "requirements" / "litellm.txt"
    run(uv, "pip", "sync", "--quiet", "--require-hashes", "--python", python, pins)
    told = run(python, HERE / "tour_litellm.py", engine.url, engine.key)
    assert len(told.splitlines()) == 8


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node here")
def test_node(engine: Any, tmp_path: Path) -> None:
    for name in ("package.json", "package-lock.json", ".npmrc", "tour.mjs"):
        shutil.copy(HERE / "node" / name, tmp_path)
    run("npm", "ci", "--silent", cwd=tmp_path)
    told = run("node", "tour.mjs", engine.url, engine.key, cwd=tmp_path)
    assert len(told.splitlines()) == 8
