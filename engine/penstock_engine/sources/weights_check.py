"""Checks that the weights of a fetched model are complete, for all runtimes and number types.

A file with the right digest is as the source has it. The source itself may have only a part of it.
"""

from pathlib import Path

from penstock_engine.files.json_reader import JsonTooLargeError, parse_json, read_json_object
from penstock_engine.sources.errors import FetchError

MAX_HEADER_BYTES = 100_000_000  # that the safetensors library accepts
GGUF_MAGIC = b"GGUF"


def check_weights(folder: Path) -> None:
    """Check the weights in a folder. Raises FetchError, OSError.

    Reasons: IncompleteWeights (a file is too short or too long), HeaderTooLarge, NotSafetensors, NotGguf,
    MissingShard, BadIndex.
    """
    for path in sorted(folder.glob("*.safetensors")):
        _check_safetensors(path)
    for path in sorted(folder.glob("*.gguf")):
        with path.open("rb") as file:
            if file.read(len(GGUF_MAGIC)) != GGUF_MAGIC:
                raise FetchError(
                    "NotGguf",
                    f"{path.name} is not a GGUF file: upload it again, as a file and not as a pointer to one",
                )
    if not (folder / "model.safetensors").exists():
        for path in sorted(folder.glob("*.safetensors.index.json")):
            _check_index(path)


def _check_safetensors(path: Path) -> None:
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        header = file.read(header_bytes) if header_bytes <= MAX_HEADER_BYTES else b""
    if 8 + header_bytes > size_bytes and header[:1] == b"{":
        raise _incomplete(path, size_bytes, 8 + header_bytes)
    try:
        entries = [entry for name, entry in parse_json(header).items() if name != "__metadata__"]
        end = max((int(entry["data_offsets"][1]) for entry in entries), default=0)
    except JsonTooLargeError as error:
        raise FetchError(
            "HeaderTooLarge",
            f"the header of {path.name} {error}: split the file into several, or upload it again if it is "
            "damaged",
        ) from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise FetchError(
            "NotSafetensors",
            f"{path.name} is not a safetensors file: upload it again, as a file and not as a pointer to one",
        ) from error
    if size_bytes != 8 + header_bytes + end:
        raise _incomplete(path, size_bytes, 8 + header_bytes + end)


def _incomplete(path: Path, size_bytes: int, expected_bytes: int) -> FetchError:
    return FetchError(
        "IncompleteWeights",
        f"{path.name} has {size_bytes} bytes at the source, but its header says {expected_bytes}: "
        "upload it again",
    )


def _check_index(path: Path) -> None:
    """Raise FetchError if a file that an index names is not beside it."""
    try:
        names = sorted({str(name) for name in read_json_object(path)["weight_map"].values()})
    except JsonTooLargeError as error:
        raise FetchError("BadIndex", f"{error}: it is damaged, so upload it again") from error
    except (ValueError, LookupError, AttributeError) as error:
        raise FetchError("BadIndex", f"{path.name} cannot be read: upload it again") from error
    if path.name != "model.safetensors.index.json" and not (path.parent / names[0]).exists():
        return  # of copies in another format, which were left out
    for name in names:
        if "/" in name or not (path.parent / name).is_file():
            raise FetchError(
                "MissingShard",
                f"{path.name} names {name[:80]!r}, which the source does not have: upload it",
            )
