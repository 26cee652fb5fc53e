"""Tours that run as programs of their own: litellm in its own environment, OpenAI's on Node."""

import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from penstock.clients.machine.caches import cache_root
from penstock.local.cached_folder import ensure_folder

HERE = Path(__file__).parent
LITELLM = HERE.parents[1] / "requirements" / "litellm.txt"
TIMEOUT_S = 240


def run(*command: str | Path, cwd: Path = HERE) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install_litellm(environment: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", environment, "--python", sys.executable)
    python = environment / "bin" / "python"
    run(uv, "pip", "sync", "--quiet", "--require-hashes", "--python", python, LITELLM)


def test_litellm(engine: Any) -> None:
    """Exactly the pinned files, and never in the environment of everything else."""
    digest = sha256(LITELLM.read_bytes() + sys.version.encode()).hexdigest()[:16]
    environment = ensure_folder(cache_root() / "litellm" / digest, install_litellm, print)
    python = environment / "bin" / "python"
    told = run(python, HERE / "tour_litellm.py", engine.url, engine.key)
    assert len(told.splitlines()) == 8


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node here")
def test_node(engine: Any, tmp_path: Path) -> None:
    for name in ("package.json", "package-lock.json", ".npmrc", "tour.mjs"):
        shutil.copy(HERE / "node" / name, tmp_path)
    run("npm", "ci", "--silent", cwd=tmp_path)
    told = run("node", "tour.mjs", engine.url, engine.key, cwd=tmp_path)
    assert len(told.splitlines()) == 8
