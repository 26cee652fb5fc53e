"""Copies of a model that tests of the preflight change, and the command that checks them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMAND = Path(sys.executable).with_name("penstock-engine")
MIB = 2**20
GIB = 2**30
Damage = Callable[[Path], None]


def config_with(**changes: Any) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def delete_files(*names: str) -> Damage:
    def damage(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return damage


def with_file(name: str, content: bytes) -> Damage:
    return lambda folder: void((folder / name).write_bytes(content))


def void(_: object) -> None:
    pass


URI = "spec.model.uri"


def run(*args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "preflight", *args],
        capture_output=True, text=True, check=False, env=os.environ | env,
    )  # fmt: skip
