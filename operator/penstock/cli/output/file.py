"""Check of command-line options that name an output file."""

import os
import sys
from pathlib import Path

import typer


def require_writable(path: Path | None) -> Path | None:
    """Raise BadParameter unless the file can be written. Called before the command starts its work."""
    if path is None or str(path) == "-":
        return path
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder: give the path of a file")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} does not exist: create it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise typer.BadParameter(f"{path} cannot be written")
    return path


def write_output(path: Path, text: str) -> None:
    """Write to a file; - is standard output."""
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        path.write_text(text)
