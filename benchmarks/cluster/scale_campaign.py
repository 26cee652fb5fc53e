"""Sends 1,000 streams while a service scales 1 -> 3 -> 1, with and without a killed engine.

    python -m benchmarks.cluster.scale_campaign [--requests 1000] [--seed 1]

Exits with 1 if a request is refused or broken, if a stream is cut that did not run when the engine was
killed, or if the kill hit no stream.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from tests.support.cluster.scale_under_load import scale_under_load

from penstock.clients.kubernetes.client import connect
from penstock.demo.load import End, corpus
from penstock.demo.model import ensure_model
from penstock.demo.stage import Stage
from penstock.local import cluster as clusters
from penstock.local.install import install

ROOT = Path(__file__).parents[2]


async def campaign(requests: int, seed: int) -> bool:
    models = ensure_model(ROOT / "docs", seconds=60)
    passed = True
    with clusters.temporary("scale-campaign", say=print) as cluster:
        await install(cluster, say=print)
        async with await connect(cluster.kubeconfig) as kube:
            stage = Stage(cluster, kube)
            stage.mount_models(models)
            example = str(ROOT / "examples" / "tiny-model.yaml")
            for kill in (False, True):
                stage.kubectl("apply", "-f", example)
                await stage.wait_until(
                    lambda v: v.ready == 1, "chat", within_s=120, what="an engine"
                )
                outcomes = await scale_under_load(
                    stage, "chat", corpus(ROOT), requests=requests, kill=kill, seed=seed
                )
                print(f"seed {seed}, kill {kill}: {outcomes}")
                passed &= outcomes.first_bad is None and not outcomes.cut_by_nobody
                passed &= bool(outcomes.ends[End.CUT]) is kill
                stage.kubectl("delete", "psvc", "chat")
                await stage.wait_until_gone("chat", within_s=60)
            await stage.close()
    return passed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.exit(0 if asyncio.run(campaign(arguments.requests, arguments.seed)) else 1)
