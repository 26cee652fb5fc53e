"""Folders of models that pods mount."""

from pathlib import Path


def make_readable(folder: Path) -> None:
    """Let the user of pods read the files of a folder, also where the umask forbids it."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
