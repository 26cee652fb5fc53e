"""Leases in a folder that processes of one or several machines share.

A lease is a file. Its holder locks it (flock) and renews its modification time. There are two ways to find
out whether the holder is gone, as neither works everywhere:

- On the same kernel (the same boot id), by the lock: the kernel drops it when the process dies, so the next
  process takes over at once. A lease that outlives its holder then expires as on other machines.
- Otherwise by the modification time: network file systems may not pass locks between machines. It is compared
  with that of a file written just now, so both times are of the file server's clock.

A lease saves work and does not protect data: files get their final name only when they are whole, so two
holders by mistake would only fetch the same bytes twice.
"""

import fcntl
import json
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

RENEWAL_S = 5.0  # between renewals; attribute caches of NFS are 3 s old or more
EXPIRY_S = 30.0  # since the last renewal; six are missing then
MAX_LEFT_S = 3600.0  # longest validity of a lease without a holder
CLOCK_STEP_S = (
    5.0  # by which a time may lie in the future; a larger one is of a clock that was set back
)
POLL_S = 0.25  # between two checks of a lease of another process
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Lease:
    """A lease that this process holds, until `release`; a context manager."""

    def __init__(self, path: Path, descriptor: int, token: str) -> None:
        self._path, self._descriptor, self._token = path, descriptor, token
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the lease up. A second call does nothing."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join()
        with suppress(OSError):
            if _content(self._path).get("token") == self._token:
                self._path.unlink()
        os.close(self._descriptor)

    @property
    def is_lost(self) -> bool:
        """Whether it had expired, and another process has removed it or taken it over."""
        try:
            return bool(_content(self._path).get("token") != self._token)
        except OSError:
            return True

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL_S):
            with suppress(OSError):
                os.utime(self._path)


def acquire(path: Path, wait: Callable[[], None], *, outlives_holder: bool = False) -> Lease:
    """Take a lease, as soon as no other process holds it.

    wait: called between attempts; it sleeps, or raises to give up. outlives_holder: the lease of a process
    that died holds on until it expires, so that the process may be started again. Raises OSError.
    """
    while True:
        if (lease := try_acquire(path, outlives_holder=outlives_holder)) is not None:
            return lease
        wait()


def try_acquire(path: Path, *, outlives_holder: bool = False) -> Lease | None:
    """Take a lease; None if another process holds it. outlives_holder: as for `acquire`. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    entries = {"token": token, "boot_id": _boot_id(), "pid": os.getpid()}
    content = json.dumps(entries | {"outlives_holder": outlives_holder}).encode()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return _take_over(path, token, content)
    if not _lock(descriptor) and _supports_locks(path.parent):
        os.close(descriptor)  # another process judges the new file, and finds no holder in it
        return None
    os.pwrite(descriptor, content, 0)
    return Lease(path, descriptor, token)


def leave_lease(path: Path, valid_s: float) -> None:
    """Create a lease that no process holds. valid_s: time until it expires. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"valid_s": valid_s}))


def extend_lease(path: Path, valid_s: float) -> None:
    """Make a lease that no process holds valid for so long at least. Raises OSError."""
    with suppress(FileNotFoundError):
        left_s = _content(path).get("valid_s", 0) + path.stat().st_mtime - _now_s(path.parent)
        if left_s >= valid_s:
            return
    leave_lease(path, valid_s)


def is_held(path: Path) -> bool:
    """Whether a lease is valid: a live process holds it, or it was left. Raises OSError."""
    with suppress(FileNotFoundError):
        content, status = _content(path), path.stat()
        if isinstance(valid_s := content.get("valid_s"), int | float):
            return _age_s(path, status.st_mtime) < min(valid_s, MAX_LEFT_S)
        if content.get("boot_id") == _boot_id() and _supports_locks(path.parent):
            is_locked = _is_locked(path)
            if is_locked or not content.get("outlives_holder"):
                return is_locked
        return _age_s(path, status.st_mtime) < EXPIRY_S
    return False


def _age_s(path: Path, renewed_s: float) -> float:
    """Time since a lease was renewed. One of the future, of a clock that was set back, counts from now on."""
    age_s = _now_s(path.parent) - renewed_s
    if age_s >= -CLOCK_STEP_S:
        return age_s
    os.utime(path)
    return 0.0


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def _take_over(path: Path, token: str, content: bytes) -> Lease | None:
    """Take the lease of a holder that is gone; None if it is held."""
    try:
        if is_held(path):
            return None
        is_foreign = _content(path).get("boot_id") != _boot_id()
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None  # released just now: the next attempt creates it
    is_locked = _lock(descriptor) or not _supports_locks(path.parent)
    if is_locked and _is_same_file(descriptor, path):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)
        if is_foreign:  # another machine may take it at the same time: the last to write has it
            time.sleep(POLL_S * 4)
        if _content(path).get("token") == token:
            return Lease(path, descriptor, token)
    os.close(descriptor)
    return None


def _is_same_file(descriptor: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _supports_locks(folder: Path) -> bool:
    """Whether a file of this folder can be locked at all."""
    probe = _probe(folder)
    descriptor = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        return _lock(descriptor)
    finally:
        os.close(descriptor)
        probe.unlink(missing_ok=True)


def _now_s(folder: Path) -> float:
    """The time by the clock that stamps files of this folder."""
    probe = _probe(folder)
    probe.write_bytes(b"now")
    now_s = probe.stat().st_mtime
    probe.unlink(missing_ok=True)
    return now_s


def _probe(folder: Path) -> Path:
    return folder / f".probe-{secrets.token_hex(8)}"


def _content(path: Path) -> dict[str, Any]:
    """The content of a lease; empty if its holder has not written it yet. Raises OSError."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _boot_id() -> str:
    with suppress(OSError):
        return BOOT_ID.read_text().strip()
    return ""
