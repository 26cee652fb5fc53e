"""Folders with good and broken LoRA adapters of a model, for a claim."""

import shutil
from pathlib import Path

from penstock_engine.make_model.adapters import make_adapter, make_adapters

BROKEN = ("rank-64", "pickled", "cut")
WEIGHTS = "adapter_model.safetensors"


def make_folders(model: Path, folder: Path, count: int) -> list[Path]:
    """Make `count` good adapters of a model, which it returns, and one of each name in BROKEN."""
    made = make_adapters(model, folder, count)
    make_adapter(model, folder / "rank-64", seed=1, rank=64)
    for name in ("pickled", "cut"):
        shutil.copytree(made[0], folder / name)
    (folder / "pickled" / WEIGHTS).rename(folder / "pickled" / "adapter_model.bin")
    with (folder / "cut" / WEIGHTS).open("r+b") as file:
        file.truncate(20_000)
    return made
