"""`penstock calibrate` against a running engine, and a simulation with what it wrote."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from penstock.sim.profile import profile


def penstock(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *args], capture_output=True, text=True, timeout=200
    )


def calibrated(*args: str) -> subprocess.CompletedProcess[str]:
    """Runs `penstock calibrate`, again when it says that the engine was busy with something else."""
    for _ in range(3):
        done = penstock("calibrate", *args)
        if "busy with something else" not in done.stderr:
            break
    return done


def test_an_engine_is_measured_and_simulated(engine: Any, tmp_path: Path) -> None:
    file = tmp_path / "soup.yaml"
    flags = ("-o", str(file))
    refused = penstock("calibrate", engine.url, *flags)
    assert (refused.returncode, file.exists()) == (1, False)
    assert "401" in refused.stderr
    done = calibrated(engine.url, *flags, "--api-key", engine.key)
    assert done.returncode == 0, done.stderr
    made = profile(str(file))
    assert (made.kv_tokens, made.block_size) == (6400, 16)
    assert (made.max_num_seqs, made.max_num_batched_tokens) == (8, 512)
    # A few layers on a CPU: longer than a microsecond, shorter than a second.
    assert 1e-6 < made.times.iteration_s(16, 128, 1, 32) < 1
    scenario = tmp_path / "calm.yaml"
    scenario.write_text(yaml.safe_dump({
        "duration_s": 60,
        "services": [{
            "profile": str(file), "ttft_s": 1, "tpot_s": 1,
            "workload": {
                "kind": "rate", "points": [[0, 1], [60, 1]],
                "mixes": [{"classes": [{
                    "prompt": {"kind": "fixed", "tokens": 100},
                    "output": {"kind": "fixed", "tokens": 10},
                }]}],
            },
        }],
    }))  # fmt: skip
    simulated = penstock("simulate", str(scenario), "--policy", "static")
    assert simulated.returncode == 0, simulated.stderr
    assert "attainment" in simulated.stdout
