"""Runs tests of kernels under Triton's interpreter, unless they have passed with the same sources."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from penstock.clients.machine.caches import cache_root

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests" / "engine_model" / "kernels"
# Names the file into which the conftest of FOLDER writes what a run has loaded.
LOADED_FILES = "PENSTOCK_LOADED_FILES"
# Folders of the sources that such a test can depend on. The engine knows nothing of the control plane.
SOURCES = (ROOT / "engine", ROOT / "benchmarks", ROOT / "tests" / "support")
LIBRARIES = ("numpy", "pytest", "torch", "triton")


def passes_interpreted(*arguments: str) -> None:
    """Run pytest on files of FOLDER with the arguments, and raise AssertionError if a test fails.

    They run in a process of their own: Triton decides at its import whether it interprets. Their inputs
    are seeded, so equal sources pass again: that is looked up in the cache.
    """
    name = hashlib.sha256(" ".join(arguments).replace(str(ROOT), "").encode()).hexdigest()
    record = cache_root() / "interpreted_tests" / f"{name}.json"
    if record.exists():
        passed = json.loads(record.read_text())
        if passed == _versions_and_digests(passed["sources"]):
            return
    loaded = record.with_suffix(f".{os.getpid()}")
    loaded.parent.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        env={**os.environ, "TRITON_INTERPRET": "1", LOADED_FILES: str(loaded)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-5000:]
    assert " passed" in result.stdout
    sources = loaded.read_text().split("\n")
    loaded.write_text(json.dumps(_versions_and_digests(sources)))
    loaded.replace(record)


def loaded_sources() -> list[str]:
    """Files in SOURCES that this process has imported, relative to ROOT."""
    names = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    files = [Path(name) for name in names if name]
    kept = [each for each in files if not set(each.parents).isdisjoint(SOURCES)]
    return sorted(str(each.relative_to(ROOT)) for each in kept)


def _versions_and_digests(sources: Iterable[str]) -> dict[str, object]:
    files = {str(path.relative_to(ROOT)) for path in FOLDER.glob("*.py")} | {*sources}
    versions = {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()}
    return {
        "versions": versions,
        "sources": {name: _digest(ROOT / name) for name in sorted(files)},
    }


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None
