"""Sends 1,000 streams while a service scales 1 -> 3 -> 1, with and without a killed engine.

    python -m benchmarks.cluster.scale_campaign [--requests 1000] [--seed 1]

Exits with 1 if a request is refused or broken, if a stream is cut that did not run when the engine was
killed, or if the kill hit no stream.
"""

import asyncio
import sys
from pathlib import Path

from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.options import option_parser
from tests.support.cluster.scale_under_load import scale_under_load

from penstock.demo.load import End, corpus
from penstock.demo.model import LONG_TRAIN_STEPS, ensure_model

ROOT = Path(__file__).parents[2]


async def campaign(requests: int, seed: int) -> bool:
    passed = True
    async with temporary_stage(
        "scale-campaign", ensure_model(ROOT / "docs", steps=LONG_TRAIN_STEPS)
    ) as stage:
        for kill in (False, True):
            stage.kubectl("apply", "-f", str(ROOT / "examples" / "tiny-model.yaml"))
            await stage.wait_for_engines("chat", 1, within_s=120)
            outcomes = await scale_under_load(
                stage, "chat", corpus(ROOT), requests=requests, kill=kill, seed=seed
            )
            print(f"seed {seed}, kill {kill}: {outcomes}")
            passed &= outcomes.first_bad is None and not outcomes.cut_by_nobody
            passed &= bool(outcomes.ends[End.CUT]) is kill
            stage.kubectl("delete", "psvc", "chat")
            await stage.wait_until_gone("chat", within_s=60)
    return passed


if __name__ == "__main__":
    arguments = option_parser(__doc__, requests=1000, seed=1).parse_args()
    sys.exit(0 if asyncio.run(campaign(arguments.requests, arguments.seed)) else 1)
