"""Cycles of a service that falls asleep and is woken by requests, in a local cluster with two gateways.

    python -m benchmarks.scale_to_zero.real_cluster [--cycles 20] [--held 200]

In each cycle a request for the tiny model comes to both gateways while the service is at zero. In the middle
one the second gateway is restarted while it holds its request, whose client asks the first gateway if it gets
no answer. At the end so many requests are held and start together. It prints the requests without an answer,
and how much later than the start-up time first tokens came. Exits with 1 if a request has no answer.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import aiohttp
import yaml
from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.options import option_parser
from tests.support.cluster.second_gateway import is_held, restart, two_gateways

from penstock.clients.kubernetes.client import Object
from penstock.clients.machine.clock import monotonic
from penstock.demo.model import ensure_model
from penstock.demo.stage import Stage, poll_until

ROOT = Path(__file__).parents[2]
NAME, IDLE_AFTER_S = "sleeper", 4
BODY = {
    "model": NAME,
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 4,
    "stream": True,
}
# Time between two reads of the pods, in seconds: the resolution of the start-up time.
POLL_S = 0.05
START_S = 240.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of a request. first_token_s: monotonic time; None: there was no whole answer."""

    asked_s: float
    first_token_s: float | None


@dataclass(frozen=True, slots=True)
class StartUp:
    """Monotonic times of the first engine: when its pod was there, and when it was ready."""

    created_s: float
    ready_s: float


def service() -> Object:
    made: Object = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    made["metadata"] = {"name": NAME}
    made["spec"]["engine"].pop("lora")
    scaling = {"minReplicas": 0, "maxReplicas": 1, "idleAfter": f"{IDLE_AFTER_S}s"}
    made["spec"]["scaling"] = scaling
    return made


async def ask(client: aiohttp.ClientSession, urls: Sequence[str]) -> Answer:
    """Ask the gateways one after the other until one has answered."""
    asked_s = monotonic()
    for url in urls:
        first_s, text = None, b""
        try:
            async with client.post(f"{url}/v1/chat/completions", json=BODY) as got:
                async for line in got.content:
                    if line.startswith(b"data: {") and first_s is None:
                        first_s = monotonic()
                    text += line
        except aiohttp.ClientError:
            continue
        if got.status == 200 and text.endswith(b"data: [DONE]\n\n"):
            return Answer(asked_s, first_s)
    return Answer(asked_s, None)


async def watch_start(stage: Stage) -> StartUp:
    """Wait for the first engine of a service at zero."""
    created_s: float | None = None
    while True:
        view = await stage.view(NAME)
        now_s = monotonic()
        if created_s is None and any(not pod.is_ending for pod in view.pods):
            created_s = now_s
        if created_s is not None and view.ready:
            return StartUp(created_s, now_s)
        await asyncio.sleep(POLL_S)


async def fall_asleep(stage: Stage) -> None:
    await stage.wait_for_reason(NAME, "ScaledToZero", within_s=START_S)
    await stage.wait_until(
        lambda view: not view.pods, NAME, within_s=START_S, what=f"{NAME} has no pod"
    )


async def run_cycle(
    client: aiohttp.ClientSession,
    stage: Stage,
    urls: tuple[str, str],
    number: int,
    *,
    restarts: bool,
) -> tuple[list[Answer], StartUp]:
    """Send requests to a service at zero, to both gateways in turn. Returns the answers and the start-up."""
    await fall_asleep(stage)
    starting = asyncio.create_task(watch_start(stage))
    asking = [
        asyncio.create_task(ask(client, urls if i % 2 == 0 else urls[::-1])) for i in range(number)
    ]
    if restarts:
        await poll_until(
            lambda: is_held(client, stage, f"{stage.namespace}/{NAME}"),
            within_s=START_S,
            what="the second gateway holds a request",
        )
        restart(stage)
    return [await each for each in asking], await starting


def print_cycle(what: str, answers: list[Answer], start: StartUp) -> int:
    """Print the figures of a cycle. Returns the requests without an answer."""
    delays_s = [
        each.first_token_s - each.asked_s - (start.ready_s - start.created_s)
        for each in answers
        if each.first_token_s is not None
    ]
    lost = len(answers) - len(delays_s)
    found = (
        f"median {median(delays_s):.2f} s, at most {max(delays_s):.2f} s" if delays_s else "none"
    )
    print(
        f"{what}: {len(answers)} requests, {lost} without an answer; start-up "
        f"{start.ready_s - start.created_s:.2f} s; first token minus start-up: {found}",
        flush=True,
    )
    return lost


async def main(cycles: int, held: int) -> int:
    lost = 0
    async with temporary_stage("zero", ensure_model(ROOT / "docs")) as stage:
        stage.apply(service())
        with two_gateways(stage) as urls:
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=START_S)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
                await stage.wait_for_engines(NAME, 1, within_s=START_S)
                for number in range(cycles):
                    restarts = number == cycles // 2
                    outcome = await run_cycle(client, stage, urls, 2, restarts=restarts)
                    with_restart = " with a restart" if restarts else ""
                    lost += print_cycle(f"cycle {number + 1}{with_restart}", *outcome)
                outcome = await run_cycle(client, stage, urls, held, restarts=False)
                lost += print_cycle("held together", *outcome)
    print(f"{lost} requests without an answer")
    return 1 if lost else 0


if __name__ == "__main__":
    options = option_parser(__doc__, cycles=20, held=200).parse_args()
    sys.exit(asyncio.run(main(options.cycles, options.held)))
