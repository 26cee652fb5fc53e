"""A fetch and a check end at SIGTERM, also as the first process of a container."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.sources.faults import Fault
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import model_files


@pytest.mark.parametrize("command", ["fetch", "preflight"])
def test_a_source_that_hangs_does_not_hold_up_the_end_of_a_pod(
    command: str, hub: HubServer, tmp_path: Path
) -> None:
    """The kernel gives a first process no default action: it needs a handler of its own."""
    hub.add("org/model", model_files())
    hub.faults.add(Fault("hang"))
    arguments = {
        "fetch": ["hf://org/model", "--into", str(tmp_path)],
        "preflight": [str(tmp_path), "--headers", f"{tmp_path}=hf://org/model"],
    }[command]
    program = str(Path(sys.executable).with_name("penstock-engine"))
    with subprocess.Popen([program, command, *arguments], stdout=subprocess.DEVNULL) as process:
        while not hub.requests:
            assert process.poll() is None
            time.sleep(0.02)
        assert signal.SIGTERM in caught_signals(process.pid)
        process.terminate()
        assert process.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize("command", ["fetch", "preflight"])
def test_a_list_that_trickles_ends_at_the_deadline(
    command: str, hub: HubServer, tmp_path: Path
) -> None:
    """Each byte renews the time that a read may take."""
    hub.add("org/model", model_files())
    hub.faults.add(Fault("trickle", "api/models"))
    log = tmp_path / "log"
    arguments = {
        "fetch": ["hf://org/model", "--into", tmp_path / "m"],
        "preflight": [tmp_path / "m", "--headers", f"{tmp_path / 'm'}=hf://org/model"],
    }[command]
    program = Path(sys.executable).with_name("penstock-engine")
    words = [program, command, *arguments, "--deadline-seconds", "1", "--termination-log", log]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 75
    report = json.loads(log.read_text())
    assert (report["ok"], report["reason"]) == (False, "DeadlineExceeded")
    assert report["is_retryable"]
    assert json.loads(done.stdout.splitlines()[-1]) == report


def caught_signals(pid: int) -> set[int]:
    """The signals that a process has handlers for."""
    found = re.search(r"SigCgt:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    mask = int(found[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}
