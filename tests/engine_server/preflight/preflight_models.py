"""Copies of a model that tests of the preflight change, and the command that checks them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.core.observed.refusal_message import refusal_message
from penstock_engine.memory.preflight import preflight
from penstock_engine.options.config import EngineConfig

COMMAND = Path(sys.executable).with_name("penstock-engine")
MIB = 2**20
GIB = 2**30
Damage = Callable[[Path], None]
Verdict = dict[str, Any]


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


def shown(verdict: Verdict) -> Verdict:
    """The verdict of a refusal with the message that an InferenceService's condition shows."""
    return verdict | {"message": refusal_message(verdict)}


def checked(config: EngineConfig, **memory: int) -> Verdict:
    """The verdict of the preflight, and of a refusal what the condition shows."""
    verdict = preflight(config, **memory)
    return verdict if verdict["ok"] else shown(verdict)


def run(*args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "preflight", *args],
        capture_output=True, text=True, check=False, env=os.environ | env,
    )  # fmt: skip
