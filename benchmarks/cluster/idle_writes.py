"""Checks that Penstock writes nothing to the API server while a Ready service is unchanged.

    python -m benchmarks.cluster.idle_writes [--minutes 3]

It counts the writes of the operator's and the gateway's ServiceAccounts in the audit log, except the leader's
Lease. Exits with 1 if there are any.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from tests.support.cluster.quiet_writes import writes_while_quiet

from penstock.clients.kubernetes.client import connect
from penstock.demo.model import ensure_model
from penstock.demo.stage import Stage
from penstock.local import cluster as clusters
from penstock.local.install import install

ROOT = Path(__file__).parents[2]


async def campaign(minutes: float) -> bool:
    models = ensure_model(ROOT / "docs", seconds=60)
    with clusters.temporary("quiet-cluster", say=print) as cluster:
        await install(cluster, say=print)
        async with await connect(cluster.kubeconfig) as kube:
            stage = Stage(cluster, kube)
            stage.mount_models(models)
            stage.kubectl("apply", "-f", str(ROOT / "examples" / "tiny-model.yaml"))
            await stage.wait_until(
                lambda view: view.scaling.get("desiredReplicas") == 1,
                "chat",
                within_s=120,
                what="settled",
            )
            await asyncio.sleep(5)
            writes = await writes_while_quiet(stage, "chat", seconds=60 * minutes)
            await stage.close()
    for write in writes:
        print(write)
    print(f"{len(writes)} writes in {minutes:g} minutes")
    return not writes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3)
    sys.exit(0 if asyncio.run(campaign(parser.parse_args().minutes)) else 1)
