"""Check of options that name an output file."""

import os
from pathlib import Path

import typer


def writable(path: Path | None) -> Path | None:
    """Check before the work starts that the file can be written. Raises BadParameter."""
    if path is None or str(path) == "-":
        return path
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} is not there: make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise typer.BadParameter(f"{path} cannot be written")
    return path
