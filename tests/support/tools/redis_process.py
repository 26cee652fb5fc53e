"""A server of Redis on a loopback port, which tests freeze, kill and start again."""

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.tools.redis import ensure_redis

# A server starts within milliseconds; a busy machine takes longer.
START_TIMEOUT_S = 20.0


class RedisProcess:
    """One server with its data in a folder. password: of the default user; empty: none."""

    def __init__(self, folder: Path, password: str = "") -> None:
        self.folder = folder
        self._password = password
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server with the data that it had, and wait until it listens."""
        server = ensure_redis(print)
        options = [
            "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--logfile", str(self.folder / "log"),
        ]  # fmt: skip
        if self._password:
            options += ["--requirepass", self._password]
        self._process = subprocess.Popen([server.program, *options], env=server.environment)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), 1),
            ):
                return
            time.sleep(0.01)
        raise AssertionError((self.folder / "log").read_text()[-2000:])

    def freeze(self) -> None:
        """Stop its threads: it accepts connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it: connections are refused."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


@contextlib.contextmanager
def redis_process(folder: Path, password: str = "") -> Iterator[RedisProcess]:
    """Run a server until the block ends."""
    server = RedisProcess(folder, password)
    server.start()
    try:
        yield server
    finally:
        server.kill()
