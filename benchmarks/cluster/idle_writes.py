"""Checks that Penstock writes nothing to the API server while a Ready service is unchanged.

    python -m benchmarks.cluster.idle_writes [--minutes 3]

It counts the writes of the operator's and the gateway's ServiceAccounts in the audit log, except the leader's
Lease. Exits with 1 if there are any.
"""

import asyncio
import sys
from pathlib import Path

from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.options import option_parser
from tests.support.cluster.quiet_writes import writes_while_quiet

from penstock.demo.model import LONG_TRAIN_STEPS, ensure_model

ROOT = Path(__file__).parents[2]


async def campaign(minutes: float) -> bool:
    async with temporary_stage(
        "quiet-cluster", ensure_model(ROOT / "docs", steps=LONG_TRAIN_STEPS)
    ) as stage:
        stage.kubectl("apply", "-f", str(ROOT / "examples" / "tiny-model.yaml"))
        await stage.wait_until(
            lambda view: view.scaling.get("desiredReplicas") == 1,
            "chat", within_s=120, what="settled",
        )  # fmt: skip
        await asyncio.sleep(5)
        writes = await writes_while_quiet(stage, "chat", seconds=60 * minutes)
    for write in writes:
        print(write)
    print(f"{len(writes)} writes in {minutes:g} minutes")
    return not writes


if __name__ == "__main__":
    options = option_parser(__doc__, minutes=3.0).parse_args()
    sys.exit(0 if asyncio.run(campaign(options.minutes)) else 1)
