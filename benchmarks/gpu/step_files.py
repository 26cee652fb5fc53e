"""Files of a step in the folder of the results: its output, and where it was when it crashed or hung."""

from pathlib import Path

MAX_LOG_BYTES = 2**20
END_CHARACTERS = 1500  # of a file, in the record of a crash
TIMEOUT = "Timeout ("  # how faulthandler begins the trace of a process that took too long


def log_path(out: Path, letter: str) -> Path:
    return out / f"{letter}.log"


def trace_path(out: Path, letter: str) -> Path:
    return out / f"{letter}.trace"


def item_path(out: Path, letter: str) -> Path:
    """Holds the name of the item that is run, while it is run."""
    return out / f"{letter}.item"


def shorten(path: Path) -> None:
    """Keep the end of a file."""
    if path.exists() and path.stat().st_size > MAX_LOG_BYTES:
        with path.open("rb") as file:
            file.seek(-MAX_LOG_BYTES, 2)
            end = file.read()
        path.write_bytes(end)


def end_of(path: Path) -> str:
    """The last characters of a file; empty without one."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(-min(path.stat().st_size, 4 * END_CHARACTERS), 2)
        return file.read().decode(errors="replace").strip()[-END_CHARACTERS:]


def text_of(path: Path) -> str:
    """The first characters of a file; empty without one."""
    return path.read_text(errors="replace")[:END_CHARACTERS].strip() if path.exists() else ""
