"""Trains the small model that the demo serves, once, and caches it."""

import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from penstock.clients.caches import cache_root

MODEL_NAME = "penstock-tiny"
# Its answers do not matter: the model only carries load.
TRAIN_S = 15.0
# Part of the cache's key: raise it after a change that makes other models.
RECIPE = 1


def ensure_model(docs: Path, *, seconds: float = TRAIN_S, console: int | None = None) -> Path:
    """Return a folder with `penstock-tiny`, trained for about `seconds` on the texts in `docs`.

    A cached model is used also if the texts were edited since. A concurrent call waits for the first one.
    Raises CalledProcessError if training fails; no partial model is left under that name.
    """
    home = cache_root() / "models" / f"tiny-{RECIPE}-{seconds:g}s"
    if (home / MODEL_NAME).is_dir():
        return home
    home.mkdir(parents=True, exist_ok=True)
    making = home / f".{MODEL_NAME}"
    with FileLock(home / ".lock"):
        if not (home / MODEL_NAME).is_dir():  # no other process has trained it meanwhile
            shutil.rmtree(making, ignore_errors=True)
            try:
                _make(making, docs, seconds, console)
                making.rename(home / MODEL_NAME)
            finally:
                shutil.rmtree(making, ignore_errors=True)
    return home


def _make(model: Path, docs: Path, seconds: float, console: int | None) -> None:
    engine = Path(sys.executable).with_name("penstock-engine")
    subprocess.run(
        [engine, "make-model", model, "--docs", docs, "--seconds", str(seconds)],
        check=True, stdout=console, stderr=console,
    )  # fmt: skip
