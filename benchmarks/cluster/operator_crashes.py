"""Kills the operator before and after every write of a rollout and compares the end state.

.venv/bin/python -m benchmarks.cluster.operator_crashes [--strategy NAME ...] [--ending NAME ...]

For each strategy and ending (promoted, or aborted by a person) a service runs its life cycle twice: once
undisturbed, and once with the operator killed at every write, before it at the first attempt and after it at
the second. Exits with 1 if the end states differ.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from benchmarks.options import option_parser
from tests.support.cluster.crashes import Ending, survive
from tests.support.cluster.crds import install_crds

from penstock.clients.kubernetes.client import Kube, connect
from penstock.core.spec.rollout import Strategy
from penstock.demo.model import ensure_model
from penstock.local import cluster as clusters
from penstock.local.cluster import Cluster

ROOT = Path(__file__).parents[2]


async def one(
    cluster: Cluster, kube: Kube, model_uri: str, strategy: Strategy, ending: Ending
) -> tuple[int, bool]:
    """Compare both runs. Returns (killed operators, whether the end states are equal)."""
    undisturbed = await survive(cluster, kube, (), model_uri, strategy, ending)
    killed = await survive(cluster, kube, None, model_uri, strategy, ending)
    is_same = killed.end == undisturbed.end
    print(
        f"{strategy}, {ending}: {len(undisturbed.writes)} writes undisturbed; killed {killed.kills} "
        f"times at {len(killed.writes)} writes: "
        f"{'the same end' if is_same else f'{killed.end} instead of {undisturbed.end}'}",
        flush=True,
    )
    return killed.kills, is_same


async def campaign(strategies: Sequence[Strategy], endings: Sequence[Ending]) -> bool:
    model_uri = f"file://{ensure_model(ROOT / 'docs')}/penstock-tiny"
    with clusters.temporary("operator-crashes", say=lambda _: None) as cluster:
        async with await connect(cluster.kubeconfig) as kube:
            await install_crds(kube)
            ends = [
                await one(cluster, kube, model_uri, strategy, ending)
                for strategy in strategies
                for ending in endings
            ]
    kills, same = sum(killed for killed, _ in ends), sum(is_same for _, is_same in ends)
    print(f"killed {kills} times; {same} of {len(ends)} lives ended the same")
    return same == len(ends)


if __name__ == "__main__":
    parser = option_parser(__doc__)
    for name, choices in (("strategy", get_args(Strategy)), ("ending", get_args(Ending))):
        parser.add_argument(f"--{name}", choices=choices, nargs="*", default=choices)
    options = parser.parse_args()
    sys.exit(0 if asyncio.run(campaign(options.strategy, options.ending)) else 1)
