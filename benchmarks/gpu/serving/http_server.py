"""Starts the engine's server as a child process, and reads its metrics. Imports no torch."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# An installed command is not needed, only the checkout.
START = "from penstock_engine.cli import main; main()"
LOG_CHARACTERS = 2000  # of the end of the log, in the record of a server that does not start
START_PHASE = re.compile(r'penstock:startup_seconds\{.*phase="(\w+)"\} (\S+)')
POLL_S = 0.1
REQUEST_S = 10.0  # limit of a request for metrics


class Server:
    """The engine's server on a loopback port. It is in this process' group, with which it is killed."""

    def __init__(self, model: Path, flags: Sequence[str], log_path: Path) -> None:
        self.port = free_port()
        self._url = f"http://127.0.0.1:{self.port}"
        self._log_path = log_path
        variables = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        paths = [str(ROOT / "engine"), variables.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        command = [sys.executable, "-c", START, "serve", str(model), "--port", str(self.port)]
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables
            )

    def wait_until_ready(self, limit_s: float) -> None:
        """Wait for /ready. Raises RuntimeError with the end of the log if it does not come in time."""
        deadline_s = time.monotonic() + limit_s
        while self._process.poll() is None and time.monotonic() < deadline_s:
            with (
                suppress(OSError),
                urllib.request.urlopen(f"{self._url}/ready", timeout=REQUEST_S),
            ):
                return
            time.sleep(POLL_S)
        status = self._process.poll()
        what = f"is not ready after {limit_s:.0f} s" if status is None else f"ended with {status}"
        raise RuntimeError(f"the server {what}; its log: {self.log()}")

    def metrics(self) -> dict[str, float]:
        """Values of /metrics by name. Series that differ in labels are added up."""
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=REQUEST_S) as answer:
            return read_metrics(answer.read().decode())

    def start_phases(self) -> dict[str, float]:
        """Seconds of each phase of the start, as `start_PHASE_s`."""
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=REQUEST_S) as answer:
            found = START_PHASE.findall(answer.read().decode())
        return {f"start_{phase}_s": round(float(seconds), 3) for phase, seconds in found}

    def cpu_s(self) -> float:
        """Processor time of the server's process, in seconds."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self) -> str:
        """The end of the server's log."""
        return self._log_path.read_text(errors="replace")[-LOG_CHARACTERS:]

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def read_metrics(text: str) -> dict[str, float]:
    """Values of Prometheus' text format by name, added up over labels."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            name = series.partition("{")[0]
            values[name] = values.get(name, 0.0) + float(value)
    return values


def free_port() -> int:
    """A loopback port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
