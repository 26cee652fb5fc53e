"""Makes the tiny model of the engine's tests. A machine trains it once for equal sources."""

import hashlib
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from penstock.clients.machine.caches import cache_root
from penstock.local.locks import file_lock
from penstock_engine.make_model.make import make

ROOT = Path(__file__).parents[3]
ENGINE = ROOT / "engine"
TEXTS = (ROOT / "README.md", ROOT / "docs")
LIBRARIES = ("numpy", "safetensors", "tokenizers", "torch", "transformers")
# Models of 20 MB that stay in the cache: of a few branches that are worked on at a time.
NUM_KEPT = 4


def make_tiny_model(folder: Path) -> None:
    """Make a Qwen3 model with a real tokenizer in a new folder, which the caller may change.

    It is trained for three steps: its answers are gibberish.
    """
    models = cache_root() / "tiny_models"
    models.mkdir(parents=True, exist_ok=True)
    trained = models / _digest()
    # Within the lock, so that none is deleted while it is copied.
    with file_lock(models / "lock", lambda _: None, "another test run"):
        if not trained.exists():
            _train(trained)
        trained.touch()
        shutil.copytree(trained, folder)
        by_use = sorted(
            filter(Path.is_dir, models.iterdir()), key=lambda each: each.stat().st_mtime
        )
        for old in by_use[:-NUM_KEPT]:
            shutil.rmtree(old)


def _train(out: Path) -> None:
    part = out.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)  # of a run that was killed
    make(part, TEXTS, seconds=1, steps=3, seed=1)
    part.rename(out)


def _digest() -> str:
    """Digest of all that the model can depend on: the engine's code, the texts, libraries."""
    versions = [platform.machine(), platform.python_version(), *map(version, LIBRARIES)]
    digest = hashlib.sha256(" ".join(versions).encode())
    for path in sorted(_sources()):
        digest.update(f"{path.relative_to(ROOT)} {path.stat().st_size} ".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    yield Path(__file__)
    yield from ENGINE.rglob("*.py")
    for text in TEXTS:
        yield from (each for each in (text, *text.rglob("*")) if each.is_file())
