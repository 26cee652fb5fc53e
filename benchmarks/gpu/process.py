"""Runs a command in a process group that ends with this process, whatever ends it. Imports no torch."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

# The first process of the group. It waits for the end of a pipe whose other end only this process holds,
# and then kills the group: also after a SIGKILL of this process, and where the command is stuck.
GUARD = 'trap "" TERM INT HUP; read -r _; kill -KILL 0'
END_S = 5  # for a killed process to end; one that is stuck in a driver is left behind
SHORTEST_S = 0.1


def run_within(command: Sequence[str], limit_s: float, log_path: Path) -> int | None:
    """Run a command. Kill it after the limit, and at its end all that it has started.

    Returns its exit status, negative for the number of a signal; None if the limit killed it. Its output
    is appended to the log.
    """
    with _guarded_group() as group, log_path.open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=group
        )
        try:
            return process.wait(timeout=max(SHORTEST_S, limit_s))
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)


@contextmanager
def _guarded_group() -> Iterator[int]:
    """Id of a new process group that is killed when this process ends."""
    read_end, write_end = os.pipe()  # inherited by none, but as the guard's standard input
    guard = subprocess.Popen(["sh", "-c", GUARD], stdin=read_end, process_group=0)
    os.close(read_end)
    try:
        yield guard.pid
    finally:
        guard.kill()
        guard.wait()
        os.close(write_end)
