"""Opens the files of an adapter's folder, which may be broken or hostile.

Files are read, not mapped into memory: a mapped file that is cut short would kill the process.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from penstock_engine.core.errors import ModelError
from penstock_engine.files.json_reader import parse_json

CONFIG_NAME = "adapter_config.json"
WEIGHTS_NAME = "adapter_model.safetensors"
PICKLE_NAMES = ("adapter_model.bin", "adapter_model.pt")
MAX_CONFIG_BYTES = 1 << 20

# Device, inode, size and modification time of a file: they differ after a write or a replacement.
FileState = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """Folder of an adapter. root: folder that must contain all of its files; None: they may be anywhere."""

    path: Path
    root: Path | None = None

    def has(self, name: str) -> bool:
        """Whether there is something of this name, such as a file or a link."""
        return os.path.lexists(self.path / name)

    def open(self, name: str) -> BinaryIO:
        """Open a file. Raises FileNotFoundError, ModelError (OutsideLoraDir, NotAFile, ReadFailed)."""
        try:
            path = self._resolve(self.path / name, name)
            # O_NONBLOCK: opening a pipe must not wait for a writer.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, ModelError):
            raise
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            raise _read_failed(name, error) from error
        file = os.fdopen(descriptor, "rb", buffering=0)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise ModelError("NotAFile", f"{name} is not a regular file")
        return file

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read the first max_bytes of a file. Raises like `open`."""
        with self.open(name) as file:
            return read_bytes(file, name, 0, max_bytes)

    def check_exists(self) -> None:
        """Raise ModelError if the folder is not where adapters may be, or lacks the files of one.

        Reasons: OutsideLoraDir, AdapterNotFound, ConfigMissing, PickleFile, WeightsMissing.
        """
        try:
            is_folder = self._resolve(self.path, "the folder").is_dir()
        except ModelError:
            raise
        except (OSError, RuntimeError) as error:
            raise _read_failed("the folder", error) from error
        if not is_folder:
            place = self.path if self.root is None else self.path.relative_to(self.root)
            raise ModelError("AdapterNotFound", f"there is no folder {str(place)[:256]}")
        if not self.has(CONFIG_NAME):
            raise ModelError("ConfigMissing", f"the folder has no {CONFIG_NAME}")
        if not self.has(WEIGHTS_NAME):
            if any(self.has(name) for name in PICKLE_NAMES):
                raise ModelError(
                    "PickleFile",
                    f"the folder has only pickled weights, which are never read: save the adapter as "
                    f"{WEIGHTS_NAME}",
                )
            raise ModelError("WeightsMissing", f"the folder has no {WEIGHTS_NAME}")

    def _resolve(self, path: Path, name: str) -> Path:
        """Follow links. Raises ModelError (OutsideLoraDir), OSError, RuntimeError (links in a circle)."""
        resolved = path.resolve()
        if self.root is not None and not resolved.is_relative_to(self.root.resolve()):
            raise ModelError(
                "OutsideLoraDir",
                f"{name} is a link that leads out of the volume, which is part of --lora-dir",
            )
        return resolved

    def read_config(self) -> dict[str, Any]:
        """Read adapter_config.json. Raises ModelError (ConfigTooLarge, ConfigInvalid, and of `open`)."""
        try:
            content = self.read(CONFIG_NAME, MAX_CONFIG_BYTES + 1)
        except FileNotFoundError as error:
            raise ModelError("ConfigMissing", f"{CONFIG_NAME} is a link to nothing") from error
        if len(content) > MAX_CONFIG_BYTES:
            raise ModelError(
                "ConfigTooLarge", f"{CONFIG_NAME} has more than {MAX_CONFIG_BYTES} bytes"
            )
        try:
            config = parse_json(content)
        except ValueError as error:
            raise ModelError("ConfigInvalid", f"{CONFIG_NAME} cannot be read as JSON") from error
        if not isinstance(config, dict):
            raise ModelError("ConfigInvalid", f"{CONFIG_NAME} must be a JSON object")
        return config


def file_state(file: BinaryIO) -> FileState:
    """The state of an open file."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def read_bytes(file: BinaryIO, name: str, start: int, num_bytes: int) -> bytes:
    """Read a part of a file; less of it if the file ends before. Raises ModelError (ReadFailed)."""
    parts: list[bytes] = []
    try:
        while num_bytes > 0:
            part = os.pread(file.fileno(), min(num_bytes, 1 << 24), start)
            if not part:
                break
            parts.append(part)
            start, num_bytes = start + len(part), num_bytes - len(part)
    except OSError as error:
        raise _read_failed(name, error) from error
    return b"".join(parts)


def _read_failed(name: str, error: Exception) -> ModelError:
    what = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "a bad link"
    return ModelError("ReadFailed", f"{name} cannot be read: {what}")
