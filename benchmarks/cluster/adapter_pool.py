"""Adapter pool on real engines: answers, residency, cold requests, a step of traffic, and broken adapters.

    python -m benchmarks.cluster.adapter_pool [--seed 1]

Runs a local cluster with three engines and 60 adapters of the small model. Answers through the gateway are
compared with the model into which each adapter is merged (greedy, float32). Exits with 1 if an answer is
wrong or missing, an engine restarts of itself, a cold request takes longer than its load and 0.5 s, a hot
adapter needs more than 5 s to be on all engines, or a broken adapter is not refused.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.cluster.campaigns.pool_run import run
from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.options import option_parser

from penstock.demo.model import MODEL_NAME, ensure_model

ROOT = Path(__file__).parents[2]


async def campaign(seed: int) -> bool:
    """Run the pool in a cluster of its own. Returns whether all went well."""
    models = ensure_model(ROOT / "docs")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "adapters"  # some broken adapters link to files beside it
        root.mkdir()
        async with temporary_stage("adapters", models) as stage:
            record = await run(stage, models / MODEL_NAME, root, seed)
    record.print_table()
    return not record.faults


if __name__ == "__main__":
    options = option_parser(__doc__, seed=1).parse_args()
    sys.exit(0 if asyncio.run(campaign(options.seed)) else 1)
