"""Streams requests while a service scales 1 -> 3 -> 1 and counts how they ended."""

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.clients.machine.clock import monotonic
from penstock.demo.load import End, Load, Outcome, Workload
from penstock.demo.stage import Stage
from penstock.local import faults


@dataclass(frozen=True, slots=True)
class StreamOutcomes:
    """Outcome of a run. peak_ready: largest number of ready engines.

    cut_by_nobody: streams that ended with an error event although no engine was killed while they ran.
    """

    ends: Counter[End]
    cut_by_nobody: int
    peak_ready: int
    final_ready: int
    first_bad: Outcome | None

    def __str__(self) -> str:
        counts = ", ".join(f"{self.ends[end]} {end}" for end in End)
        total = sum(self.ends.values())
        return f"{total} requests: {counts}; replicas 1 -> {self.peak_ready} -> {self.final_ready}"


async def scale_under_load(
    stage: Stage, service: str, words: Sequence[str], *, requests: int, kill: bool, seed: int
) -> StreamOutcomes:
    """Send `requests` streams while the service scales 1 -> 3 -> 1.

    kill: kill the first engine, which has most streams, once a second one is ready. The last tenth of the
    requests comes from few clients, so that requests still run during the scale-down.
    """
    workload = Workload(service, words, prompt_words=110, max_tokens=128, seed=seed)
    killed_s = math.inf
    first = next(pod.name for pod in (await stage.view(service)).pods if pod.is_ready)
    async with Load(stage.cluster.gateway_url, workload) as load:
        load.limit(requests - requests // 10)
        load.set_clients(44)
        if kill:
            await stage.wait_until(
                lambda view: view.ready >= 2, service, within_s=90, what="a second engine is ready"
            )
            killed_s = monotonic()
            faults.kill(stage.cluster, first, "engine")
        await load.wait()
        await stage.wait_for_engines(service, 3, within_s=90)
        peak = (await stage.view(service)).ready
        load.limit(requests // 10)
        load.set_clients(1)
        shrinking = asyncio.create_task(stage.wait_for_engines(service, 1, within_s=180))
        await load.wait()
        await shrinking
        final = (await stage.view(service)).ready
    bad = [o for o in load.outcomes if o.end in (End.REFUSED, End.BROKEN)]
    ends = Counter(outcome.end for outcome in load.outcomes)
    by_nobody = sum(o.end is End.CUT and not _was_running(o, killed_s) for o in load.outcomes)
    return StreamOutcomes(ends, by_nobody, peak, final, bad[0] if bad else None)


def _was_running(outcome: Outcome, at_s: float) -> bool:
    return outcome.started_s <= at_s <= outcome.started_s + outcome.duration_s
