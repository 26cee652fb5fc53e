"""Finds the folders of adapters that clients name, below --lora-dir."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from penstock_engine.lora.adapter_files import AdapterFolder
from penstock_engine.server.transport.errors import RequestError

# JSON object: path in the container -> folder of this machine, for each mount. The local cluster's node
# agent sets it, because its containers are processes without mounts of their own.
MOUNTS_VARIABLE = "PENSTOCK_LOCAL_MOUNTS"


class AdapterFolders:
    """Resolves the paths of adapters in requests. root: of --lora-dir; None: clients can load none."""

    def __init__(self, root: Path | None, variables: Mapping[str, str] = os.environ) -> None:
        self._root = None if root is None else os.path.normpath(root.absolute())
        mounts: dict[str, str] = json.loads(variables.get(MOUNTS_VARIABLE, "{}"))
        self._mounts = {os.path.normpath(path): Path(folder) for path, folder in mounts.items()}

    def resolve(self, path: str) -> AdapterFolder:
        """The folder at a client's path, which is absolute or relative to the root.

        Links are not followed here, because file systems may be slow. Raises RequestError (400) without a
        root, and (404) if the path leads out of it.
        """
        if self._root is None:
            raise RequestError(
                400,
                "adapters cannot be loaded: start the engine with --lora-dir",
                code="no_lora_dir",
            )
        whole = os.path.normpath(os.path.join(self._root, path))
        if "\x00" in path or not _is_in(whole, self._root):
            raise RequestError(
                404,
                "there is no such lora_path in --lora-dir",
                param="lora_path",
                code="outside_lora_dir",
            )
        mounts = [mount for mount in self._mounts if _is_in(whole, mount)]
        mount = max(mounts, key=len, default=self._root)
        root = self._mounts.get(mount, Path(mount))
        return AdapterFolder(Path(os.path.normpath(root / os.path.relpath(whole, mount))), root)


def trusted_folder(path: str) -> AdapterFolder:
    """The folder at a path of the command line, whose files may be anywhere."""
    return AdapterFolder(Path(os.path.abspath(path)))


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
