"""Files of runs that the comparison of adapter placements goes on with."""

import json
from pathlib import Path

from benchmarks.simulator.adapter_placement import finished

from penstock.sim.adapters.run import Summary


def test_a_file_of_older_runs_is_read(tmp_path: Path) -> None:
    """Loads per served request are missing in such files."""
    summary = {
        "ttft_p50_s": 0.1, "ttft_p99_s": 2.0, "ttft_mean_s": 0.3, "loads_per_min": 60.0,
        "miss_share": 0.1, "refused": 0, "requests": 1000, "loads_per_request": 0.2,
    }  # fmt: skip
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({"case": "zipf-40", "rule": "penstock", "seed": 3, **summary}))
    expected = Summary(0.1, 2.0, 0.3, 60.0, 0.1, 0, 1000, 0.2, loads_per_served=0.0)
    assert finished(path) == {("zipf-40", "penstock", 3): expected}
