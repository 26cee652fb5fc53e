"""The files of a model that came in archives, such as the layers of an image."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock_engine.sources.archives.archive import UnpackedFile, model_root, unpack
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.listing import Digest, SourceFile
from penstock_engine.sources.selection import select


def unpack_model(
    archives: Sequence[Path],
    others: Sequence[SourceFile],
    folder: Path,
    limits: FetchLimits,
    check: Callable[[], None],
) -> tuple[SourceFile, ...]:
    """Unpack archives into a folder, and select the model's files. Raises FetchError, OSError.

    others: files of the source that are not in an archive. check: as for `unpack`. The location of a file
    that was unpacked is its path in the folder.
    """
    found: dict[str, UnpackedFile] = {}
    for number, archive in enumerate(archives):
        unpacked = unpack(archive, folder / str(number), limits, check)
        found |= {file.name: file for file in unpacked}
    root = model_root(list(found))
    start = f"{root}/" if root else ""
    files = [
        SourceFile(
            name=name.removeprefix(start),
            size_bytes=file.size_bytes,
            blob=f"sha256/{file.sha256}",
            digest=Digest("sha256", file.sha256),
            location=str(file.path),
        )
        for name, file in found.items()
        if name.startswith(start)
    ]
    return select([*files, *others], limits)


def place_unpacked(file: SourceFile, blob: Path) -> None:
    """Give an unpacked file the path of its blob, once its bytes are on the disk. Raises OSError."""
    path = Path(file.location)
    if not path.is_absolute() or not path.is_file():
        return  # of the source itself, to be downloaded
    with path.open("rb") as content:
        os.fsync(content.fileno())
    blob.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, blob)
