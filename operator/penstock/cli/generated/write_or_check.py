"""Writes generated files, or checks that they are up to date."""

from pathlib import Path

import typer


def write_or_check(folder: Path, files: dict[str, str], *, check: bool) -> None:
    """Write files (name to text) into a folder; with `check`, write nothing and exit 1 if one differs."""
    stale = []
    for name, content in files.items():
        path = folder / name
        if check:
            if not path.is_file() or path.read_text() != content:
                stale.append(str(path))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            typer.echo(path)
    if stale:
        typer.echo(f"Out of date: {', '.join(stale)}. Run `make generate`.", err=True)
        raise typer.Exit(1)
