"""Names of files in a model's folder: relative to it, and refused if they would leave it or are too long."""

from collections.abc import Iterable

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits


def check_name(name: str, limits: FetchLimits) -> None:
    """Raise FetchError (UnsafeName, NameTooLong) for a relative path that may not be written."""
    parts = name.split("/")
    shown = repr(name[:80])
    if not name or any(part in ("", ".", "..") for part in parts) or "\\" in name:
        raise FetchError(
            "UnsafeName",
            f"the source has a file called {shown}, which would leave the model's folder: remove it there",
        )
    if any(ord(character) < ord(" ") or ord(character) == 0x7F for character in name):
        raise FetchError(
            "UnsafeName",
            f"the source has a file called {shown}, with a control character: rename it there",
        )
    if len(name.encode(errors="surrogatepass")) > limits.max_path_bytes or any(
        len(part.encode(errors="surrogatepass")) > limits.max_file_name_bytes for part in parts
    ):
        raise FetchError(
            "NameTooLong",
            f"the source has a file called {shown}…, which is longer than {limits.max_file_name_bytes} "
            f"bytes, or than {limits.max_path_bytes} with its folders: rename it there",
        )


def name_below(path: str, folder: str) -> str | None:
    """The name of a file relative to a folder; None if it is elsewhere. folder: may be the file itself."""
    if not folder:
        return path
    if path == folder:
        return path.rpartition("/")[2]
    return path.removeprefix(f"{folder}/") if path.startswith(f"{folder}/") else None


def check_distinct(names: Iterable[str]) -> None:
    """Raise FetchError (UnsafeName) if a file has the name of another, or of a folder."""
    found: set[str] = set()
    for name in sorted(names):
        folders = ["/".join(name.split("/")[:count]) for count in range(1, name.count("/") + 2)]
        if any(folder in found for folder in folders):
            raise FetchError(
                "UnsafeName",
                f"the source has two files called {name[:80]!r}, or a file and a folder: remove one there",
            )
        found.add(name)
