"""Upgrades the CRDs and the operator, in either order and back, while services are in all phases.

.venv/bin/python -m benchmarks.cluster.api_upgrade [--quiet-s 45] [--seed 1]

The next version has one more field, in the spec and in the status, and another pod template and engine
image. After each step all services are reconciled several times. No pod may be restarted or replaced, no
Deployment, traffic share, condition, phase or route may change, and no request may fail. Exits with 1
otherwise.
"""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from benchmarks.cluster.campaigns.next_version import NAME
from benchmarks.cluster.campaigns.phase_cases import CASES
from benchmarks.cluster.campaigns.service_states import ASPECTS, Record, differences, record
from benchmarks.cluster.campaigns.standing_services import StandingServices
from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.cluster.campaigns.versions import NEXT, THIS, InstalledOperator, Version, apply_crds
from benchmarks.options import option_parser
from tests.support.cluster.manifests import route_manifest, service_manifest

from penstock.chart.names import OPERATOR_PORT
from penstock.clients.kubernetes.resources import MODEL_ROUTES
from penstock.clients.machine.clock import monotonic
from penstock.clients.pods.exposition import Samples
from penstock.demo.load import End, Load, Workload, corpus
from penstock.demo.model import ensure_model
from penstock.demo.stage import Stage

ROOT = Path(__file__).parents[2]
# Times that all services are reconciled after a step, besides those that the step causes.
ROUNDS = 3
# Time without a change before the drill starts, and the time-out of the wait for it, s.
SETTLED_S, SETTLE_TIMEOUT_S = 30.0, 300.0
# Longest time between the two halves of a step that changes CRDs and operator together, s.
MAX_GAP_S = 3.0
RECONCILES, ERRORS = (
    "penstock_operator_reconciles_total",
    "penstock_operator_unexpected_errors_total",
)
ROUTES = {"assistant": ("rolling", "judging"), "broken": ("rolling", "absent")}


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the drill: the versions that are installed in it. None: no change."""

    title: str
    crds: Version | None = None
    operator: Version | None = None


STEPS = (
    Step("CRDs", crds=NEXT),
    Step("then the operator", operator=NEXT),
    Step("the operator back", operator=THIS),
    Step("then the CRDs back", crds=THIS),
    Step("the operator", operator=NEXT),
    Step("then the CRDs", crds=NEXT),
    Step("both back", crds=THIS, operator=THIS),
    Step("both", crds=NEXT, operator=NEXT),
    Step("both back", crds=THIS, operator=THIS),
)


class Drill:
    """The drill on one cluster.

    quiet_s: time of each step after its changes. rng: chooses the delays within a step.
    """

    def __init__(self, stage: Stage, loads: list[Load], quiet_s: float, rng: random.Random) -> None:
        self._stage, self._kube, self._loads = stage, stage.kube, loads
        self._quiet_s, self._rng = quiet_s, rng
        self._services = StandingServices(stage, CASES)
        self._operator = InstalledOperator(stage.kube)
        self._crds = self._version = THIS

    async def begin(self) -> None:
        await self._services.begin()
        for name, backends in ROUTES.items():
            await self._kube.create(MODEL_ROUTES, "default", route_manifest(name, *backends))

    async def settle(self) -> Record:
        """Wait until nothing changes by itself any more. Raises TimeoutError."""
        deadline_s, last = monotonic() + SETTLE_TIMEOUT_S, await self._record()
        while monotonic() < deadline_s:
            await asyncio.sleep(SETTLED_S)
            now = await self._record()
            if now == last and not await self._services.unexpected():
                return now
            print(*differences(last, now), sep="\n", flush=True)
            last = now
        raise TimeoutError(f"services still change: {await self._services.unexpected()}")

    async def take(self, step: Step, before: Record) -> tuple[Record, bool]:
        """Take a step. Returns the record after it, and whether nothing changed or failed."""
        done = [len(load.outcomes) for load in self._loads]
        started = await self._counts()
        await self._install(step)
        for number in range(ROUNDS):
            await self._services.annotate(f"{step.title} {number}")
            await asyncio.sleep(self._quiet_s / ROUNDS)
        after, counts = await self._record(), await self._counts()
        if step.operator is None:
            counts.subtract(started)
        found = list(differences(before, after))
        breaches = [str(each) for each in found] + await self._services.unexpected()
        breaches += await self._field_errors()
        num_requests, num_failed = self._requests_since(done)
        numbers = Counter(each.aspect for each in found)
        changes = [numbers[aspect] for aspect in ASPECTS]
        print_row([step.title, counts[RECONCILES], *changes, num_requests, num_failed])
        if counts[RECONCILES] < ROUNDS * len(CASES):
            breaches.append(f"only {counts[RECONCILES]} reconciles")
        if counts[ERRORS]:
            breaches.append(f"{counts[ERRORS]} unexpected errors of the operator")
        print(*(f"  {line}\n" for line in breaches), sep="", end="", flush=True)
        return after, not breaches and not num_failed

    def _requests_since(self, done: list[int]) -> tuple[int, int]:
        """Numbers of requests, and of failed ones. done: of each load, those that are not counted."""
        ends = Counter(
            outcome.end
            for load, count in zip(self._loads, done, strict=True)
            for outcome in load.outcomes[count:]
        )
        return ends.total(), ends.total() - ends[End.DONE]

    async def _install(self, step: Step) -> None:
        gap_s = self._rng.uniform(0, MAX_GAP_S) if step.crds and step.operator else 0.0
        gaps = self._rng.sample([0.0, gap_s], 2)
        async with asyncio.TaskGroup() as group:
            if step.crds is not None:
                self._crds = step.crds
                group.create_task(self._apply_crds(step.crds, gaps[0]))
            if step.operator is not None:
                self._version = step.operator
                group.create_task(self._run_operator(step.operator, gaps[1]))

    async def _apply_crds(self, version: Version, after_s: float) -> None:
        await asyncio.sleep(after_s)
        probe = service_manifest("probe", {"engine": {NAME: "2:4"}})
        await apply_crds(self._kube, version, probe)

    async def _run_operator(self, version: Version, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._operator.run(version)

    async def _field_errors(self) -> list[str]:
        """Services whose status lacks the next version's field, or has it although the CRD lacks it."""
        if self._version is THIS:
            return []
        wanted = self._crds is NEXT
        return [
            f"{body['metadata']['name']}: the status {'lacks' if wanted else 'has'} {NAME}"
            for body in await self._services.bodies()
            if body["metadata"]["name"] != "invalid"
            and (NAME in body["status"]["engine"]) != wanted
        ]

    async def _record(self) -> Record:
        return await record(self._kube, self._stage.cluster)

    async def _counts(self) -> Counter[str]:
        """Reconciles and unexpected errors of the running operator."""
        [pod] = await self._operator.pods()
        url = f"http://{pod['status']['podIP']}:{OPERATOR_PORT}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            samples = Samples.read(await answer.text(), [RECONCILES, ERRORS])
        return Counter({name: round(samples.sum(name)) for name in (RECONCILES, ERRORS)})


def print_row(cells: Iterable[object]) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


async def run(quiet_s: float, seed: int) -> bool:
    print(f"seed {seed}", flush=True)
    models, words, loads = ensure_model(ROOT / "docs"), corpus(ROOT), list[Load]()
    async with temporary_stage("api-upgrade", models) as stage, AsyncExitStack() as stack:
        drill = Drill(stage, loads, quiet_s, random.Random(seed))
        await drill.begin()
        for name in [*(case.name for case in CASES if case.has_load), "assistant"]:
            workload = Workload(name, words, prompt_words=20, max_tokens=8, think_s=2.0, seed=seed)
            load = Load(stage.cluster.gateway_url, workload)
            loads.append(await stack.enter_async_context(load))
            load.set_clients(1)
        state, is_good = await drill.settle(), True
        pods = len(state["pods"])
        print(f"{len(CASES)} services, {pods} pods, {len(loads)} clients", flush=True)
        print_row(["step", "reconciles", *ASPECTS, "requests", "failed"])
        print_row(["---"] * (len(ASPECTS) + 4))
        for step in STEPS:
            state, is_same = await drill.take(step, state)
            is_good = is_good and is_same
        for load in loads:
            await load.finish()
    return is_good


if __name__ == "__main__":
    options = option_parser(__doc__, quiet_s=45.0, seed=1).parse_args()
    sys.exit(0 if asyncio.run(run(options.quiet_s, options.seed)) else 1)
