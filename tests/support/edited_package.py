"""Copies of packages with the edits of a recipe in CONTRIBUTING.md."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import penstock

ROOT = Path(__file__).parents[2]
PRESENT = Path(penstock.__file__).parent
Edits = Mapping[str, Sequence[tuple[str, str]]]


def edited_package(directory: Path, edits: Edits, present: Path = PRESENT) -> Path:
    """Copy a package into a directory, with edits. Returns the copy.

    edits: by file, the text after which a text is inserted, and that text. present: folder of the package.
    """
    package = directory / present.name
    shutil.copytree(present, package)
    for name, insertions in edits.items():
        text = (package / name).read_text()
        for before, inserted in insertions:
            assert text.count(before) == 1, f"{name}: {before}"
            text = text.replace(before, before + inserted)
        (package / name).write_text(text)
    return package


def run_program(package: Path, program: str, *arguments: str, given: str = "") -> Any:
    """Run a module with this copy of a package, and with others beside it.

    Returns what it printed as JSON. given: its input.
    """
    environment = os.environ | {"PYTHONPATH": f"{package.parent}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", program, *arguments],
        cwd=package.parent, env=environment, input=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
