"""Specs drawn at random over all fields: accepted ones start an engine that agrees with them.

    python -m benchmarks.cluster.random_specs [--specs 60] [--seed 1] [--only NUMBER] [--models FOLDER]

Each spec passes what a user's spec passes: a real API server with the CRDs and the operator's own reading of
the schema, which must agree; the operator's check of the runtime; the preflight, as its pod runs it; and the
engine, as its pod runs it. A refusal must name a field of the spec. An engine must become ready, answer, and
report in /v1/models, its metrics and its log what the spec says; it must stay within the memory of the pod
and stop within the grace period. An engine that exits at its start although its preflight passed would be
restarted forever, and fails the campaign. Engines on accelerators, and those of other runtimes, are rendered
and checked by the preflight, but not started.

Bar: no problem. Failing specs are printed with what to reproduce them with.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.cluster.spec_draws import draw_spec
from benchmarks.cluster.spec_runs import KINDS, Outcome, SpecRun
from benchmarks.options import option_parser
from tests.support.cluster.crds import install_crds
from tests.support.cluster.engine_agreement import as_manifest
from tests.support.engine.small_models import make_models

from penstock.clients.kubernetes.client import Kube, connect
from penstock.local import cluster as clusters

ENGINES_AT_A_TIME = 2


async def follow_all(
    kube: Kube, models: Path, folder: Path, seed: int, numbers: list[int]
) -> list[Outcome]:
    """Follow the specs of these numbers."""
    run = SpecRun(kube, models, folder, asyncio.Semaphore(ENGINES_AT_A_TIME))
    return await asyncio.gather(*(run.follow(each, draw_spec(seed, each)) for each in numbers))


def report(outcomes: list[Outcome], seed: int) -> str:
    """The table of outcomes, and the problems."""
    counts = Counter(outcome.kind for outcome in outcomes)
    failing = [outcome for outcome in outcomes if outcome.problems]
    lines = [f"| {kind} | {counts[kind]} |" for kind in KINDS]
    lines += [f"| failing | {len(failing)} |"]
    for outcome in failing:
        lines += [
            "",
            f"seed {seed}, spec {outcome.number} ({outcome.kind}): {as_manifest(outcome.spec)}",
        ]
        lines += [f"  {problem}" for problem in outcome.problems]
        lines += [f"  refusal: {outcome.refusal}"] if outcome.refusal else []
    return "\n".join(lines)


async def _campaign(args: argparse.Namespace, kubeconfig: Path, folder: Path) -> list[Outcome]:
    models = args.models or folder / "models"
    if not models.exists():
        models.mkdir()
        make_models(models)
    numbers = [args.only] if args.only is not None else list(range(args.specs))
    async with await connect(kubeconfig) as kube:
        await install_crds(kube)
        return await follow_all(kube, models, folder, args.seed, numbers)


def main() -> None:
    parser = option_parser(__doc__, specs=60, seed=1)
    parser.add_argument("--only", type=int, help="number of the only spec to follow")
    parser.add_argument(
        "--models", type=Path, help="folder of the models, made if it does not exist"
    )
    parser.add_argument("--verbose", action="store_true", help="print all refusals")
    args = parser.parse_args()
    print(f"seed {args.seed}")
    with (
        tempfile.TemporaryDirectory() as folder,
        clusters.temporary("specs", say=lambda _: None) as cluster,
    ):
        outcomes = asyncio.run(_campaign(args, cluster.kubeconfig, Path(folder)))
    if args.verbose:
        for outcome in outcomes:
            print(f"{outcome.number} {outcome.kind}: {outcome.refusal}")
    print(report(outcomes, args.seed))
    sys.exit(any(outcome.problems for outcome in outcomes))


if __name__ == "__main__":
    main()
