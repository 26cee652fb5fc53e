"""Makes the small model that the demo serves, and its LoRA adapters, once, and caches them."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from penstock.clients.machine.caches import cache_root
from penstock.local.locks import file_lock

MODEL_NAME = "penstock-tiny"
ADAPTERS_NAME = f"{MODEL_NAME}-adapters"
NUM_ADAPTERS = 2
# Steps of the training, 17 s on two idle cores. Its answers need not make sense, but have text: that takes
# some 90 steps, which a busy machine does not make in a fixed time. Campaigns that measure take more.
TRAIN_STEPS, LONG_TRAIN_STEPS = 100, 400
# Part of the cache's key: raise it after a change that makes other models.
RECIPE = 1


def ensure_model(docs: Path, *, steps: int = TRAIN_STEPS, console: int | None = None) -> Path:
    """Return a folder with `penstock-tiny`, trained in so many steps on the texts in `docs`.

    A cached model is used also if the texts were edited since. A concurrent call waits for the first one.
    Raises CalledProcessError if training fails; no partial model is left under that name.
    """
    home = cache_root() / "models" / f"tiny-{RECIPE}-{steps}"
    args = ("--docs", docs, "--steps", str(steps))
    _ensure(home / MODEL_NAME, console, lambda made: ("make-model", made, *args))
    return home


def ensure_adapters(home: Path, *, console: int | None = None) -> Path:
    """Return the folder with random LoRA adapters of the model in `home`: adapter-000, adapter-001.

    Raises CalledProcessError if they cannot be made.
    """
    args = ("--count", str(NUM_ADAPTERS))
    _ensure(
        home / ADAPTERS_NAME,
        console,
        lambda made: ("make-adapters", home / MODEL_NAME, made, *args),
    )
    return home / ADAPTERS_NAME


def _ensure(
    folder: Path, console: int | None, command: Callable[[Path], tuple[str | Path, ...]]
) -> None:
    """Make a folder, if it is not there, by a command of the engine that is given another name for it."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = folder.with_name(f".{folder.name}")
    with file_lock(folder.parent / ".lock", _say, f"makes {folder.name}"):
        if folder.is_dir():  # another process has made it meanwhile
            return
        shutil.rmtree(made, ignore_errors=True)
        engine = Path(sys.executable).with_name("penstock-engine")
        try:
            subprocess.run([engine, *command(made)], check=True, stdout=console, stderr=console)
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
