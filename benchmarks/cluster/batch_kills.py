"""A batch beside interactive requests with objectives, while parts of Penstock are killed.

.venv/bin/python -m benchmarks.cluster.batch_kills [--lines 2000] [--rate 4] [--seconds 150] [--seed 1]

Four runs at two gateways and two engines of the tiny model, with the same interactive requests: alone, beside
a batch, and both again while a gateway, the operator and an engine are killed, and with the batch its server
too. The runs with a batch last as long as the batch.

Bar: beside a batch, the fraction of interactive requests within their objectives is at most one point lower
than alone, and each line is answered once. Exits with 1 otherwise.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
from benchmarks.cluster.campaigns.batch_stage import BatchStage, batch_stage
from benchmarks.cluster.campaigns.interactive_load import InteractiveLoad, Objectives
from benchmarks.options import option_parser
from tests.support.cluster.batch_server import ENDED, BatchClient, completion_lines

from penstock.clients.kubernetes.client import Object
from penstock.clients.machine.clock import monotonic
from penstock.demo.load import corpus
from penstock.demo.model import ensure_model

ROOT = Path(__file__).parents[2]
NAME = "chat"
OBJECTIVES = Objectives(ttft_s=1.0, tpot_s=0.1)
MAX_LOSS = 0.01
HEAD = """
| interactive requests | in time | sent | lost | TTFT, p99 | TPOT, p99 | batch |
| --- | --- | --- | --- | --- | --- | --- |"""
LINE_TOKENS = 32  # of each answer to a line
POLL_S = 0.5
WARM_UP_S = 30.0  # in which gateways learn the throughput of engines
BATCH_LIMIT_S = 1200.0


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of one run. ttft_s, tpot_s: 99 % were faster. lines: of the batch, if there was one."""

    what: str
    attainment: float
    num_requests: int
    num_lost: int
    ttft_s: float
    tpot_s: float
    batch_s: float | None = None
    lines: str = ""

    def row(self) -> str:
        batch = "" if self.batch_s is None else f"{self.batch_s:.0f} s: {self.lines}"
        in_time = f"{100 * self.attainment:.2f} %"
        return (
            f"| {self.what} | {in_time} | {self.num_requests} | {self.num_lost} | {self.ttft_s:.2f} s | "
            f"{1000 * self.tpot_s:.0f} ms | {batch} |"
        )


class Campaign:
    """The runs at one cluster."""

    def __init__(self, stage: BatchStage, rate: float, num_lines: int, seed: int) -> None:
        self._stage, self._num_lines, self._seed = stage, num_lines, seed
        self._load = InteractiveLoad(stage.gateway_url, NAME, corpus(ROOT), rate)
        self.faults: list[str] = []

    async def warm_up(self) -> None:
        async with self._load.running(self._seed + 1):
            await asyncio.sleep(WARM_UP_S)

    async def alone(self, seconds: float, *, is_killed: bool) -> Run:
        """Send requests for some time. is_killed: kill the parts one after another meanwhile."""
        kills = self._stage.kills if is_killed else []
        async with self._load.running(self._seed):
            for kill in kills:
                await asyncio.sleep(seconds / (len(kills) + 1))
                await kill()
            await asyncio.sleep(seconds / (len(kills) + 1))
        return self._run(f"alone{', with kills' if is_killed else ''}")

    async def beside_batch(self, *, is_killed: bool) -> Run:
        """Send requests until a batch has ended. is_killed: kill the parts while it runs."""
        kills = [*self._stage.kills, self._stage.kill_batch_server] if is_killed else []
        lines = completion_lines(NAME, self._num_lines, max_tokens=LINE_TOKENS, ignore_eos=True)
        async with (
            httpx.AsyncClient(base_url=self._stage.gateway_url, timeout=60) as http,
            self._load.running(self._seed),
        ):
            client, started_s = BatchClient(http), monotonic()
            batch = await client.create(lines)
            batch = await self._follow(client, batch, kills)
            batch_s = monotonic() - started_s
            results = await client.results(batch)
        counts = self._check(batch, lines, results)
        what = f"beside a batch{', with kills' if is_killed else ''}"
        return self._run(what, batch_s, counts)

    async def _follow(
        self, client: BatchClient, batch: Object, kills: list[Callable[[], Awaitable[None]]]
    ) -> Object:
        """Wait until a batch has ended. Kill a part after each equal part of the lines."""
        left = list(enumerate(kills, start=1))
        async with asyncio.timeout(BATCH_LIMIT_S):
            while True:
                found = await client.get(batch["id"])
                if found is not None and found["status"] in ENDED:
                    break
                done = 0 if found is None else found["request_counts"]["completed"]
                if left and done >= left[0][0] * self._num_lines / (len(kills) + 1):
                    await left.pop(0)[1]()
                await asyncio.sleep(POLL_S)
        if left:
            self.faults.append(f"the batch had ended before {len(left)} of the kills")
        return found

    def _check(self, batch: Object, lines: list[Object], results: list[Object]) -> str:
        """Note what is wrong with the answers to a batch. Returns the number of lines by status."""
        answers = Counter(each["custom_id"] for each in results)
        wanted = {each["custom_id"] for each in lines}
        missing, twice = wanted - answers.keys(), [name for name, n in answers.items() if n > 1]
        statuses = Counter(each["response"]["status_code"] for each in results if each["response"])
        if batch["status"] != "completed" or missing or twice or statuses != {200: len(lines)}:
            self.faults.append(
                f"{batch['status']}: {len(missing)} lines without an answer, {len(twice)} with several, "
                f"statuses {dict(statuses)}"
            )
        return ", ".join(f"{n} lines {status}" for status, n in statuses.items())

    def _run(self, what: str, batch_s: float | None = None, lines: str = "") -> Run:
        load = self._load
        run = Run(
            what, load.attainment(OBJECTIVES), len(load.timings), load.num_lost,
            load.quantile_s(lambda timing: timing.ttft_s), load.quantile_s(lambda timing: timing.tpot_s),
            batch_s, lines,
        )  # fmt: skip
        print(run.row(), flush=True)
        return run


async def campaign(num_lines: int, rate: float, seconds: float, seed: int) -> bool:
    async with batch_stage(NAME, ensure_model(ROOT / "docs"), OBJECTIVES) as stage:
        made = Campaign(stage, rate, num_lines, seed)
        await made.warm_up()
        print(HEAD)
        for is_killed in (False, True):
            alone = await made.alone(seconds, is_killed=is_killed)
            beside = await made.beside_batch(is_killed=is_killed)
            if alone.attainment - beside.attainment > MAX_LOSS:
                made.faults.append(f"{beside.what}: more than a point below {alone.what}")
    for fault in made.faults:
        print(f"FAULT: {fault}")
    return not made.faults


if __name__ == "__main__":
    options = option_parser(__doc__, lines=2000, rate=4.0, seconds=150.0, seed=1).parse_args()
    is_met = asyncio.run(campaign(options.lines, options.rate, options.seconds, options.seed))
    sys.exit(0 if is_met else 1)
