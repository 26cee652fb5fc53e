"""Address of the socket in the folder of a node's cache, also if its path is long."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock_engine.contract.node_cache import SOCKET_NAME

MAX_ADDRESS_BYTES = 107  # sun_path of Linux has 108, one of which ends it


@contextmanager
def socket_address(folder: Path) -> Iterator[str]:
    """The path to bind or to connect, valid within the block. Raises OSError.

    A path that is too long for a socket goes through an open descriptor of the folder.
    """
    path = folder / SOCKET_NAME
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield str(path)
        return
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
