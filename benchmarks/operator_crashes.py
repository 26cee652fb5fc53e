"""The operator killed before and after each write of a service's life: the same end state every time.

    python benchmarks/operator_crashes.py [--strategy Canary] [--moments 38]

Exits 1 when an end state differs, when a moment never came, or when there were fewer than 20.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import get_args

from penstock.adapters.kube import connect
from penstock.core.rollout.phases import Strategy
from penstock.demo.crashes import moments, survive
from penstock.demo.model import ensure_model
from penstock.local import cluster as clusters
from penstock.local.install import install_crds

ROOT = Path(__file__).parents[1]
FEWEST = 20


async def campaign(strategy: Strategy, count: int | None) -> bool:
    chosen = moments(strategy)[:count]
    model_uri = f"file://{ensure_model(ROOT / 'docs', seconds=60)}/penstock-tiny"
    cluster = clusters.up("operator-crashes", say=print)
    same = 0
    try:
        async with await connect(cluster.kubeconfig) as kube:
            await install_crds(kube)
            reference = await survive(cluster, kube, (), model_uri, strategy)
            print(f"undisturbed, {len(reference.writes)} writes: {reference.end}")
            for number, moment in enumerate(chosen, 1):
                life = await survive(cluster, kube, (moment,), model_uri, strategy)
                verdict = "same end state" if life.end == reference.end else f"differs: {life.end}"
                if life.missed:
                    verdict = "the moment never came"
                same += verdict == "same end state"
                print(
                    f"{number}. killed {moment}: {verdict}, {len(life.writes)} writes", flush=True
                )
    finally:
        clusters.down(cluster.name)
    print(f"{same} of {len(chosen)} moments end in the same state")
    return same == len(chosen) >= FEWEST


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", choices=get_args(Strategy), default="Rolling")
    parser.add_argument("--moments", type=int, help="only the first so many")
    options = parser.parse_args()
    sys.exit(0 if asyncio.run(campaign(options.strategy, options.moments)) else 1)
