"""Rolls out revisions in namespaces with limits and faults, and compares how they end with the documentation.

.venv/bin/python -m benchmarks.cluster.rollouts_under_limits [--cases 60] [--seed 1]

Each case is a service with a fault (a full ResourceQuota, a LimitRange, a terminating pod that a finalizer
holds, a lost node, an orphaned Deployment), a strategy, and an edit (good, bad, bad and undone, refused). API
server, controllers, operator and gateway are real; a script plays the pods. Bar: each ends as
`docs/concepts/rollouts.md` says, within a bound; as many pods serve as the strategy promises; `penstock
rollout status --watch` has the right exit status. Exits with 1 otherwise.
"""

import asyncio
import sys
from collections.abc import Sequence

from benchmarks.cluster.campaigns.limit_cases import Case, draw_cases
from benchmarks.cluster.campaigns.limited_rollout import LimitedRollout, Result
from benchmarks.cluster.campaigns.scripted_pods import ScriptedPods, create_lost_node
from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.http_load import closed_loop
from benchmarks.options import option_parser
from tests.support.background import background

from penstock.cli.rollout.status import console
from penstock.clients.kubernetes.client import Kube
from penstock.clients.machine.clock import monotonic

# More of them delay each other's pods on two cores.
NUM_AT_ONCE = 10
MAX_SHOWN_CHARS = 110


async def run_cases(kube: Kube, cases: Sequence[Case], num_at_once: int) -> list[Result]:
    """Run all cases. The results are in the order of their ends."""

    async def run(case: Case) -> Result:
        result = await LimitedRollout(kube, case).run()
        print(row(case, result), flush=True)
        return result

    await create_lost_node(kube)
    async with background(ScriptedPods(kube).run()):
        return await closed_loop(num_at_once, cases, run)


def row(case: Case, result: Result) -> str:
    """A row of the table."""
    missed = "; ".join(result.missed)
    return (
        f"| {case.number} | {case.fault} | {case.settings} | {case.edit} {case.image.split('/')[-1]} | "
        f"{result.ending[:MAX_SHOWN_CHARS]} | {result.took_s:.0f} s | "
        f"{result.least} ({case.min_serving}) | {missed} |"
    )


async def campaign(cases: Sequence[Case], num_at_once: int) -> bool:
    """Run all cases on a cluster of their own. Returns whether nothing was missed."""
    console.quiet = True  # of `rollout status`
    async with temporary_stage("rollouts-under-limits") as stage:
        started_s = monotonic()
        print("| case | fault | strategy | edit | ended | after | served (promised) | missed |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        results = await run_cases(stage.kube, cases, num_at_once)
    right = sum(not each.missed for each in results)
    print(f"{right} of {len(results)} as expected, in {monotonic() - started_s:.0f} s")
    return right == len(results)


def main() -> int:
    parser = option_parser(__doc__, cases=60, seed=1, at_once=NUM_AT_ONCE)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the drawn cases to run")
    options = parser.parse_args()
    cases = [
        case
        for case in draw_cases(options.cases, options.seed)
        if not options.only or case.number in options.only
    ]
    return 0 if asyncio.run(campaign(cases, options.at_once)) else 1


if __name__ == "__main__":
    sys.exit(main())
