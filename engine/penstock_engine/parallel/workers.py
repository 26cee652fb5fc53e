"""The processes of all ranks but the first, which starts them, leads them and ends them.

A worker lives as long as its socket: when rank 0 closes it, or dies in whatever way, the worker
ends; and when a worker dies, rank 0 sees it at once.
"""

import logging
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from penstock_engine.core.errors import ModelError
from penstock_engine.parallel.messages import Channel, Message, Part, Report, encode

logger = logging.getLogger(__name__)

# What a worker has for its own end, once its socket is closed.
END_TIMEOUT_S = 5


class Worker:
    def __init__(self, part: Part) -> None:
        """Starts its process, with the interpreter of this one."""
        ours, theirs = socket.socketpair()
        self.rank = part.rank
        self.channel = Channel(ours)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock_engine.parallel.worker",
                 str(theirs.fileno())],
                stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        self.channel.send(part)

    def wait_until(self, state: Literal["joining", "ready"]) -> None:
        """Raises ModelError: the worker's own, or WorkerLost when it ends without one."""
        try:
            report = self.channel.receive()
        except (EOFError, OSError):
            raise ModelError("WorkerLost", self.describe_end()) from None
        if not isinstance(report, Report) or report.state not in (state, "failed"):
            raise ModelError("WorkerLost", f"rank {self.rank} said {report} instead of {state}")
        if report.state == "failed":
            raise ModelError(report.reason, report.message)

    def describe_end(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_TIMEOUT_S)
        return (
            f"the process of rank {self.rank} has ended, its exit status {self.process.returncode}"
        )

    def end(self) -> int:
        """Its exit status: 0, unless it has ended by itself before."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_TIMEOUT_S)
        self.process.kill()
        self.channel.socket.close()
        return self.process.wait()


class Workers:
    """All of them, ranks 1 and up. Once closed, they are gone for good."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._watching: threading.Thread | None = None
        self._is_closed = False

    def start(self, part: Part) -> None:
        self._workers.append(Worker(part))

    def wait_until(self, state: Literal["joining", "ready"]) -> None:
        """Raises ModelError."""
        for worker in self._workers:
            worker.wait_until(state)

    def send(self, message: Message, num_ranks: int) -> None:
        """To those below num_ranks. Raises OSError when one is gone."""
        data = encode(message)
        for worker in self._workers[: num_ranks - 1]:
            worker.channel.socket.sendall(data)

    def watch(self, on_death: Callable[[], None]) -> None:
        """on_death: called at most once, on a thread of its own, when a worker ends by itself."""
        self._watching = threading.Thread(
            target=self._watch, args=(on_death,), name="worker-watch", daemon=True
        )
        self._watching.start()

    def close(self) -> dict[int, int]:
        """Returns the exit statuses, by rank, of those that have ended by themselves."""
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
        [(fd, _), *_] = hang_ups.poll()
        if not self._is_closed:
            logger.error("%s", by_fd[fd].describe_end())
            on_death()
