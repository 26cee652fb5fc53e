"""Trains the small model that the demo serves, once, and caches it."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from penstock.clients.caches import cache_root

MODEL_NAME = "penstock-tiny"
# Its answers do not matter: the model only carries load.
TRAIN_S = 15.0


def ensure_model(docs: Path, *, seconds: float = TRAIN_S, console: int | None = None) -> Path:
    """Return a folder with `penstock-tiny`, trained for about `seconds` on the texts in `docs`.

    The folder's name has a hash of the texts and the duration, so edited texts give a new model. A
    concurrent call waits for the first one. Raises CalledProcessError if training fails; no partial
    model is left under that name.
    """
    digest = hashlib.sha256(f"{seconds}".encode())
    texts = sorted(docs.rglob("*.md"))
    for text in texts:
        digest.update(text.read_bytes())
    home = cache_root() / "models" / digest.hexdigest()[:16]
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
