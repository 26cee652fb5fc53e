"""Starts, supervises and ends the worker processes of all ranks but the first.

Worker and rank 0 notice each other's end by their socket: when rank 0 closes it or dies, the worker
exits; when a worker dies, rank 0 is informed at once. A worker that is stopped (SIGSTOP, a debugger)
and a slow step are logged while rank 0 waits for them.
"""

import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal

from penstock_engine.core.errors import ModelError
from penstock_engine.execution.parallel.messages import Channel, Message, RankConfig, Report, encode
from penstock_engine.execution.parallel.ranks import STEP_TIMEOUT

logger = logging.getLogger(__name__)

# Time for a worker to exit after its socket was closed. It is killed afterwards.
END_TIMEOUT_S = 5
# Interval of the checks for stopped workers and slow steps.
WATCH_INTERVAL_S = 1.0
# Steps longer than this are logged. A prefill on a CPU may take seconds.
SLOW_STEP_S = 30.0


class Worker:
    """The process of one rank, with the socket to it."""

    def __init__(self, part: RankConfig) -> None:
        """Start the process, with the Python interpreter of this process."""
        ours, theirs = socket.socketpair()
        self.rank = part.rank
        self.channel = Channel(ours)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock_engine.execution.parallel.worker",
                 str(theirs.fileno())],
                stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        self.channel.send(part)

    def wait_until(self, state: Literal["joining", "ready"]) -> None:
        """Wait for the worker to report a state. Raises ModelError: the worker's own error, or
        WorkerLost if it exits without reporting one."""
        try:
            report = self.channel.receive()
        except (EOFError, OSError):
            raise ModelError("WorkerLost", self.describe_end()) from None
        if not isinstance(report, Report) or report.state not in (state, "failed"):
            raise ModelError("WorkerLost", f"rank {self.rank} said {report} instead of {state}")
        if report.state == "failed":
            raise ModelError(report.reason, report.message)

    def is_stopped(self) -> bool:
        """Whether the process is stopped by a signal such as SIGSTOP."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return False
        options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self.process.pid, options) is not None
        except ChildProcessError:  # it has ended
            return False

    def describe_end(self) -> str:
        """A log message with the exit status of the process, waiting for it briefly."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_TIMEOUT_S)
        return (
            f"the process of rank {self.rank} has ended, its exit status {self.process.returncode}"
        )

    def end(self) -> int:
        """Wait for the process to exit, or kill it. Returns the exit status.

        The status is 0, unless the process had exited by itself before.
        """
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_TIMEOUT_S)
        self.process.kill()
        self.channel.socket.close()
        return self.process.wait()


class Workers:
    """The worker processes of ranks 1 and up. They cannot be started again after `close`."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._watching: threading.Thread | None = None
        self._is_closed = False
        self._step_started_s: float | None = None

    def start(self, part: RankConfig) -> None:
        """Start the process of one rank."""
        self._workers.append(Worker(part))

    def wait_until(self, state: Literal["joining", "ready"]) -> None:
        """Wait until all workers report this state. Raises ModelError."""
        waits = WaitLog()
        for worker in self._workers:
            report = select.poll()
            report.register(worker.channel.socket, select.POLLIN)
            while not report.poll(WATCH_INTERVAL_S * 1000):
                waits.log(self._workers, None)
            worker.wait_until(state)

    def send(self, message: Message, num_ranks: int) -> None:
        """Send a message to the ranks below num_ranks. Raises OSError if one has exited."""
        data = encode(message)
        for worker in self._workers[: num_ranks - 1]:
            worker.channel.socket.sendall(data)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Context manager around a step of all ranks; `watch` logs the step if it is slow."""
        self._step_started_s = time.monotonic()
        try:
            yield
        finally:
            self._step_started_s = None

    def watch(self, on_death: Callable[[], None]) -> None:
        """Start a thread that watches the workers.

        on_death: called on that thread, at most once, when a worker exits by itself. From now on a
        send fails if the worker reads nothing for STEP_TIMEOUT.
        """
        for worker in self._workers:
            worker.channel.socket.settimeout(STEP_TIMEOUT.total_seconds())
        self._watching = threading.Thread(
            target=self._watch, args=(on_death,), name="worker-watch", daemon=True
        )
        self._watching.start()

    def close(self) -> dict[int, int]:
        """End all workers. Returns the exit statuses, by rank, of those that had exited by themselves."""
        self._is_closed = True
        for worker in self._workers:
            with suppress(OSError):  # it is gone already
                worker.channel.socket.shutdown(socket.SHUT_RDWR)
        if self._watching is not None:
            self._watching.join()
            self._watching = None
        statuses = {worker.rank: worker.end() for worker in self._workers}
        self._workers.clear()
        return {rank: status for rank, status in statuses.items() if status}

    def _watch(self, on_death: Callable[[], None]) -> None:
        hang_ups = select.poll()
        by_fd = {worker.channel.socket.fileno(): worker for worker in self._workers}
        for fd in by_fd:
            hang_ups.register(fd, 0)
        waits = WaitLog()
        while not (ended := hang_ups.poll(WATCH_INTERVAL_S * 1000)):
            waits.log(self._workers, self._step_started_s)
        if not self._is_closed:
            logger.error("%s", by_fd[ended[0][0]].describe_end())
            on_death()


class WaitLog:
    """Logs what rank 0 waits for: each stopped worker and each slow step once."""

    def __init__(self) -> None:
        self._stopped: set[int] = set()
        self._logged_step_s: float | None = None

    def log(self, workers: Sequence[Worker], step_started_s: float | None) -> None:
        """Log newly stopped and continued workers, and the current step if it is slow."""
        stopped = {worker.rank for worker in workers if worker.is_stopped()}
        for rank in stopped - self._stopped:
            logger.error(
                "the process of rank %d is stopped: the engine waits for it, and ends after %s; "
                "SIGCONT continues it",
                rank,
                STEP_TIMEOUT,
            )
        for rank in self._stopped - stopped:
            logger.info("the process of rank %d is no longer stopped", rank)
        self._stopped = stopped
        if step_started_s is None or step_started_s == self._logged_step_s:
            return
        if time.monotonic() - step_started_s > SLOW_STEP_S:
            logger.warning(
                "a step has taken more than %.0f s: one of %d ranks is slow or hangs",
                SLOW_STEP_S,
                len(workers) + 1,
            )
            self._logged_step_s = step_started_s
