"""A command `penstock-engine` for pods of a test's cluster: it starts engines by `fork`, after the imports.

The imports take 3 s of processor time, and the scenarios start some hundred engines. The command that a pod
runs is CLIENT, a small script. It hands arguments, environment and output over to this server, which forks.
The script passes SIGTERM on and ends as the engine ends. If it is killed, so is the engine.
"""

import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.engine.engine_process import PRELOADED

PR_SET_PDEATHSIG = 1  # of prctl(2)
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys

SIGNALS = [signal.SIGTERM, signal.SIGINT]

def pass_on(number, frame):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass

server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
engine = json.dumps([sys.argv, dict(os.environ), os.getcwd()]).encode()
socket.send_fds(server, [len(engine).to_bytes(4, "big")], [1, 2])
server.sendall(engine)
pid = int.from_bytes(server.recv(4), "big")
for number in SIGNALS:
    signal.signal(number, pass_on)
signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
code = int.from_bytes(server.recv(4), "big", signed=True)
for number in SIGNALS:
    signal.signal(number, signal.SIG_DFL)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextmanager
def forked_engine_command() -> Iterator[Path]:
    """Run the server, and give the folder with the command for as long."""
    with tempfile.TemporaryDirectory(prefix="engines-") as name, _served(Path(name)):
        yield Path(name)


@contextmanager
def _served(folder: Path) -> Iterator[None]:
    address = str(folder / "fork.sock")
    command = folder / "penstock-engine"
    command.write_text(CLIENT.format(python=sys.executable, address=address))
    command.chmod(0o755)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(128)  # connections that wait until the imports are done
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.engine.forked_command", str(listener.fileno())],
        cwd=Path(__file__).parents[3],
        pass_fds=[listener.fileno()],
        stdin=subprocess.DEVNULL,
    )
    listener.close()
    try:
        yield
    finally:
        server.terminate()
        server.wait()


class Server:
    """Forks an engine for each connection, and tells the client when it ended."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve for ever; returns in each engine's process, which is set up to run the command."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    if self._fork(self._listener.accept()[0]):
                        return
                elif isinstance(key.fileobj, socket.socket):
                    self._kill(key.fileobj, key.data)
                else:
                    self._report_end(key.fd, *key.data)

    def _fork(self, client: socket.socket) -> bool:
        """Fork the engine that a client asks for. Returns True in the engine's process."""
        try:
            length, outputs, _, _ = socket.recv_fds(client, 4, 2)
            asked = json.loads(_receive(client, int.from_bytes(length, "big")))
        except (EOFError, OSError):  # the client has been killed
            client.close()
            return False
        if (pid := os.fork()) == 0:
            client.close()
            self._close()
            _become(*asked, outputs)
            return True
        for output in outputs:
            os.close(output)
        with suppress(OSError):  # the end of the connection is read next
            client.sendall(pid.to_bytes(4, "big"))
        self._selector.register(client, selectors.EVENT_READ, pid)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, client))
        return False

    def _kill(self, client: socket.socket, pid: int) -> None:
        """Kill the engine of a client that has been killed."""
        if client.fileno() == -1:  # both have ended
            return
        self._selector.unregister(client)
        os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):  # it had no session yet
            os.killpg(pid, signal.SIGKILL)

    def _report_end(self, pidfd: int, pid: int, client: socket.socket) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if client in self._selector.get_map():
            self._selector.unregister(client)
        with suppress(OSError):
            client.sendall(code.to_bytes(4, "big", signed=True))
        client.close()

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close() if isinstance(key.fileobj, socket.socket) else os.close(key.fd)
        self._selector.close()


def _become(words: list[str], environment: dict[str, str], folder: str, outputs: list[int]) -> None:
    """Make this process the one that the pod's command asked for."""
    _end_with_parent()
    os.setsid()
    for number, output in zip((1, 2), outputs, strict=True):
        os.dup2(output, number)
        os.close(output)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    sys.modules["__main__"].__package__ = None  # as a script: Typer names the command by it


def _end_with_parent() -> None:
    """Have this process killed when its parent ends, so that a killed test run leaves no engine."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _receive(client: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = client.recv(count - len(received))
        if not part:
            raise EOFError
        received += part
    return received


def main() -> None:
    _end_with_parent()
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # so that collections do not write to shared pages
    Server(socket.socket(fileno=int(sys.argv[1]))).run()
    from penstock_engine.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
