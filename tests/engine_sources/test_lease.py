"""Leases: one holder at a time, and what happens after one is gone."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock_engine.sources.download import write_failed
from penstock_engine.sources.storage.lease import (
    EXPIRY_S,
    acquire,
    is_held,
    leave_lease,
    try_acquire,
)

HOLD = """
import sys, time
from pathlib import Path
from penstock_engine.sources.storage.lease import try_acquire
assert try_acquire(Path(sys.argv[1])) is not None
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def lease(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "blob"


def leave(lease: Path, age_s: float, boot_id: str = "another machine") -> None:
    """Leave the lease of a process of another machine, which renewed it some seconds ago."""
    lease.parent.mkdir(parents=True, exist_ok=True)
    lease.write_text(json.dumps({"token": "theirs", "boot_id": boot_id, "pid": 1}))
    renewed_s = time.time() - age_s
    os.utime(lease, (renewed_s, renewed_s))


def test_a_lease_has_one_holder(lease: Path) -> None:
    first = try_acquire(lease)
    assert first is not None
    assert is_held(lease)
    assert try_acquire(lease) is None
    first.release()
    first.release()
    assert not lease.exists()
    second = try_acquire(lease)
    assert second is not None
    second.release()


def test_the_lease_of_a_killed_process_is_taken_at_once(lease: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, lease], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert try_acquire(lease) is None
        process.send_signal(signal.SIGKILL)
    assert lease.exists()
    assert not is_held(lease)
    taken = try_acquire(lease)
    assert taken is not None
    assert is_held(lease)
    taken.release()


def test_the_lease_of_another_machine_is_taken_once_it_is_not_renewed(lease: Path) -> None:
    leave(lease, age_s=EXPIRY_S / 2)
    assert is_held(lease)
    assert try_acquire(lease) is None
    leave(lease, age_s=EXPIRY_S + 1)
    assert not is_held(lease)
    taken = try_acquire(lease)
    assert taken is not None
    assert json.loads(lease.read_text())["token"] != "theirs"
    taken.release()


def test_a_holder_that_lost_its_lease_does_not_remove_the_other_ones(lease: Path) -> None:
    held = try_acquire(lease)
    assert held is not None
    leave(lease, age_s=0)
    held.release()
    assert json.loads(lease.read_text())["token"] == "theirs"


def test_a_lease_without_content_is_that_of_a_process_that_begins(lease: Path) -> None:
    lease.parent.mkdir()
    lease.touch()
    assert is_held(lease)
    os.utime(lease, (1, 1))
    assert not is_held(lease)


def test_a_waiting_process_gets_it_or_gives_up(lease: Path) -> None:
    first = try_acquire(lease)
    assert first is not None
    waits = []

    def wait() -> None:
        waits.append(None)
        if len(waits) == 2:
            first.release()

    second = acquire(lease, wait)
    assert len(waits) == 2

    def give_up() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        acquire(lease, give_up)
    second.release()


@pytest.mark.parametrize(
    ("number", "reason", "is_retryable"),
    [
        (errno.ENOSPC, "NoSpace", False),
        (errno.EDQUOT, "QuotaExceeded", False),
        (errno.EROFS, "NotWritable", False),
        (errno.EACCES, "NotWritable", False),
        (errno.EIO, "WriteFailed", True),
    ],
)
def test_a_volume_that_refuses_writes_has_a_reason(
    number: int, reason: str, is_retryable: bool
) -> None:
    error = write_failed(OSError(number, os.strerror(number)))
    assert (error.reason, error.is_retryable) == (reason, is_retryable)


def test_after_a_clock_was_set_back_leases_expire_as_if_they_were_renewed_then(lease: Path) -> None:
    leave_lease(lease, valid_s=60)
    os.utime(lease, (time.time() + 86_400, time.time() + 86_400))
    assert is_held(lease)
    assert lease.stat().st_mtime < time.time() + 60
    leave(lease, age_s=-86_400)
    assert is_held(lease)
    assert lease.stat().st_mtime < time.time() + 60
