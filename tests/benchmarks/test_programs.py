"""Every program of benchmarks says how it is called."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_CALLED_BY_HAND = {
    # Starts the operator or gateway of a later version, with the arguments of `penstock`.
    "benchmarks.cluster.campaigns.next_version",
    # Are sent to Python in pods and containers that have no other package.
    "benchmarks.real_node.connection_probe",
    "benchmarks.real_node.image_facts",
    "benchmarks.real_node.stream_answer",
    # Runs in a Python that has runai-model-streamer.
    "benchmarks.start_fast.runai_child",
}


@pytest.mark.slow
def test_every_program_prints_its_options() -> None:
    """In one process, as most of the time is that of imports."""
    programs = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for path in (ROOT / "benchmarks").rglob("*.py")
        if 'if __name__ == "__main__":' in path.read_text()
    }
    assert len(programs) > 50
    command = [sys.executable, "-m", "tests.benchmarks.print_help"]
    done = subprocess.run(
        [*command, *sorted(programs - NOT_CALLED_BY_HAND)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.split() == []
