"""Uses 60 adapters on three engines: mixed batches, cold requests, kills, a step of traffic, broken ones."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cluster.campaigns.residency_lag import ResidencyLag
from benchmarks.cluster.campaigns.run_record import Record
from benchmarks.http_load import closed_loop
from tests.support.cluster.adapted_service import (
    CLAIM,
    NAME,
    NUM_TOKENS,
    AdaptedService,
    adapter,
    service,
)
from tests.support.cluster.broken_adapters import BROKEN, MAX_RANK, make_broken
from tests.support.engine.merged import greedy_answers

from penstock.clients.machine.clock import monotonic
from penstock.core.spec.service import Object
from penstock.demo.stage import Stage, poll_until
from penstock.local import faults
from penstock.local.models_claim import folder_claim
from penstock_engine.make_model.adapters import make_adapters

ENGINES, SLOTS, NUM_ADAPTERS = 3, 16, 60
NUM_REQUESTS, CONCURRENCY = 1200, 24
NUM_COLD = 20
HOT_CLIENTS = 40
PROMPTS = tuple(tuple(range(start, start + 20)) for start in (40, 140, 240))

# Greedy tokens for each prompt, by model name.
Answers = Mapping[str, Sequence[Sequence[int]]]


async def run(stage: Stage, model: Path, folder: Path, seed: int) -> Record:
    """Deploy the service and its adapters, which are made in the folder, and use them."""
    record, draw = Record(), random.Random(seed)
    made = make_adapters(model, folder, NUM_ADAPTERS)
    broken = list(BROKEN)
    for name in broken:
        make_broken(name, model, folder)
    folders = {NAME: None, **{f"lora-{number}": each for number, each in enumerate(made)}}
    answers = greedy_answers(model, folders, PROMPTS, NUM_TOKENS)
    stage.mount(folder_claim(CLAIM, folder))
    adapted = AdaptedService(stage)
    lag = ResidencyLag(adapted)
    try:
        await _start(adapted, record)
        lag.start()
        await _mix(adapted, record, lag, answers, draw, "mixed batches")
        await _ask_cold(adapted, record, answers)
        await _kill_engine(adapted, record, lag, answers, draw)
        await _restart_operator(adapted, record, lag, answers, draw)
        await _step(adapted, record, answers)
        await _break(adapted, record, answers, broken, draw)
    finally:
        await lag.stop()
        await adapted.close()
    return record


async def _start(adapted: AdaptedService, record: Record) -> None:
    """Start the engines. One adapter is wanted everywhere, two are pinned, the others are on demand."""
    lora = {
        "maxAdapters": 8, "maxCPUAdapters": SLOTS, "maxRank": MAX_RANK, "sources": [f"pvc://{CLAIM}"],
    }  # fmt: skip
    placements: list[Object] = [{"policy": "All"}]
    placements += 2 * [{"policy": "Fixed", "replicas": 1, "eviction": "Never"}]
    placements += (NUM_ADAPTERS - len(placements)) * [{}]
    adapted.stage.apply(
        service(
            {"lora": lora, "maxNumSeqs": 16},
            scaling={"minReplicas": ENGINES, "maxReplicas": ENGINES},
        ),
        *(
            adapter(f"lora-{number}", f"adapter-{number:03}", **placement)
            for number, placement in enumerate(placements)
        ),
    )
    took_s = await adapted.stage.wait_for_engines(NAME, ENGINES, within_s=180)
    record.add("start", took_s, f"{ENGINES} engines of {SLOTS} slots are ready")
    started_s = monotonic()
    for number in range(3):
        await adapted.wait_for(f"lora-{number}", Loaded="AllLoaded", Ready="Ready")
    record.add("minimum copies", monotonic() - started_s, "loaded")


async def _mix(
    adapted: AdaptedService, record: Record, lag: ResidencyLag, answers: Answers, draw: random.Random,
    what: str, count: int = NUM_REQUESTS,
) -> None:  # fmt: skip
    """Send requests for adapters of Zipf popularity, many at a time, and compare the answers."""
    lag.take()
    names = list(answers)
    weights = [1 / rank for rank in range(1, len(names) + 1)]
    asked = [(name, draw.randrange(len(PROMPTS))) for name in draw.choices(names, weights, k=count)]
    started_s = monotonic()
    wrong, statuses = await _ask_all(adapted, answers, asked)
    took_s = monotonic() - started_s
    await adapted.wait_for_true_statuses(within_s=30)
    failed = sum(number for status, number in statuses.items() if status != 200)
    result = (
        f"{count - wrong - failed} of {count} answers equal the merged weights', {failed} failed"
    )
    record.add(what, took_s, f"{result}; {_lags(lag.take())}")
    record.expect(wrong == 0, f"{what}: {wrong} answers are not their adapter's")
    record.expect(failed == 0, f"{what}: failed requests: {statuses}")


async def _ask_all(
    adapted: AdaptedService, answers: Answers, asked: Sequence[tuple[str, int]]
) -> tuple[int, Counter[int]]:
    """Send the requests, CONCURRENCY at a time. Returns the number of wrong answers, and the statuses."""

    async def ask(request: tuple[str, int]) -> tuple[int, bool]:
        name, index = request
        status, body = await adapted.ask(name, PROMPTS[index])
        is_wrong = status == 200 and body["choices"][0]["token_ids"] != answers[name][index]
        return status, is_wrong

    found = await closed_loop(CONCURRENCY, asked, ask)
    return sum(is_wrong for _, is_wrong in found), Counter(status for status, _ in found)


async def _ask_cold(adapted: AdaptedService, record: Record, answers: Answers) -> None:
    """Ask for adapters that no engine has, each once cold and once warm."""
    over_s, cold_s = [], []
    for name in list(answers)[: -NUM_COLD - 1 : -1]:
        for copy, pod in await adapted.on_engines():
            if copy.startswith(f"{name}@"):
                await adapted.unload(copy, pod)
        await adapted.wait_for_true_statuses(within_s=30)
        await asyncio.sleep(1.5)  # longer than between two polls of the gateway
        times_s = []
        for _ in range(2):
            started_s = monotonic()
            tokens = await adapted.tokens(name, PROMPTS[0])
            times_s.append(monotonic() - started_s)
            record.expect(tokens == answers[name][0], f"{name}: the answer is not its own")
        cold_s.append(times_s[0])
        over_s.append(times_s[0] - times_s[1])
    result = (
        f"{NUM_COLD} cold requests: {max(cold_s):.2f} s at most, of which the load and its wait "
        f"{max(over_s):.2f} s at most"
    )
    record.add("cold requests", sum(cold_s), result)
    record.expect(max(over_s) < 0.5, "a cold request took longer than its load and 0.5 s")


async def _kill_engine(
    adapted: AdaptedService, record: Record, lag: ResidencyLag, answers: Answers, draw: random.Random
) -> None:  # fmt: skip
    """Kill an engine. Its copies leave the statuses, and its minimum copies come back."""
    lag.take()
    started_s = monotonic()
    victim = min(pod.name for pod in (await adapted.stage.view(NAME)).pods)
    faults.kill(adapted.stage.cluster, victim, "engine")
    await adapted.stage.wait_until(
        lambda view: view.ready < ENGINES, NAME, within_s=30, what="the kill is noticed"
    )
    await adapted.wait_for_true_statuses(within_s=30)
    without = _lags(lag.take())
    await adapted.stage.wait_for_engines(NAME, ENGINES, within_s=120)
    await adapted.wait_for("lora-0", Loaded="AllLoaded")
    await adapted.wait_for_true_statuses(within_s=30)
    record.add(
        "engine killed", monotonic() - started_s, f"without it {without}; back {_lags(lag.take())}"
    )
    await _mix(adapted, record, lag, answers, draw, "after the engine's kill", NUM_REQUESTS // 4)


async def _restart_operator(
    adapted: AdaptedService, record: Record, lag: ResidencyLag, answers: Answers, draw: random.Random
) -> None:  # fmt: skip
    """Delete the operator's pods. Requests go on, and the next operator changes no copy."""
    lag.take()
    copies = await adapted.wait_for_settled_copies()
    started_s = monotonic()
    await adapted.restart_operator()
    record.add("operator restarted", monotonic() - started_s, _lags(lag.take()))
    record.expect(copies == await adapted.on_engines(), "the next operator changed copies")
    await _mix(adapted, record, lag, answers, draw, "after its restart", NUM_REQUESTS // 4)


async def _step(adapted: AdaptedService, record: Record, answers: Answers) -> None:
    """Ask for one adapter with one client, then with many: from one copy to all engines."""
    name = "lora-40"
    await adapted.tokens(name, PROMPTS[0])
    before = await _copies_of(adapted, name)
    is_over = asyncio.Event()

    async def client() -> None:
        while not is_over.is_set():
            await adapted.tokens(name, PROMPTS[0])

    clients = [asyncio.create_task(client()) for _ in range(HOT_CLIENTS)]
    try:

        async def is_everywhere() -> bool:
            return await _copies_of(adapted, name) == ENGINES

        took_s = await poll_until(is_everywhere, within_s=60, what=f"{name} on all engines")
    finally:
        is_over.set()
        await asyncio.gather(*clients)
    record.add("hot adapter", took_s, f"{HOT_CLIENTS} clients: {before} copies to {ENGINES}")
    record.expect(took_s <= 5, "a hot adapter took longer than 5 s to be everywhere")


async def _copies_of(adapted: AdaptedService, name: str) -> int:
    return sum(copy.startswith(f"{name}@") for copy, _ in await adapted.on_engines())


async def _break(
    adapted: AdaptedService, record: Record, answers: Answers, broken: Sequence[str], draw: random.Random
) -> None:  # fmt: skip
    """Apply the broken adapters and ask for them beside good ones."""
    started_s = monotonic()
    adapted.stage.apply(*(adapter(name, name) for name in broken))
    await adapted.wait_for_models(broken)
    good = [(draw.choice(list(answers)), 0) for _ in range(NUM_REQUESTS // 4)]
    meanwhile = asyncio.create_task(_ask_all(adapted, answers, good))
    refused = await asyncio.gather(*(adapted.ask(name, PROMPTS[0]) for name in broken))
    wrong, statuses = await meanwhile
    reasons: dict[str, str] = {}
    for name, (status, body) in zip(broken, refused, strict=True):
        record.expect(status == 424, f"{name}: {status} {body}")
        command = ("wait", "--for=condition=Resolved=False", f"lora/{name}", "--timeout=60s")
        adapted.stage.kubectl(*command)
        found = {each["type"]: each for each in (await adapted.statuses())[name]["conditions"]}
        reasons[name] = found["Resolved"]["message"]
    result = (
        f"{len(broken)} refused with {len(set(reasons.values()))} different messages; "
        f"good requests meanwhile: {statuses}, {wrong} wrong"
    )
    record.add("broken adapters", monotonic() - started_s, result)
    record.expect(wrong == 0 and set(statuses) == {200}, "broken adapters harmed good requests")
    # The kill is the only restart.
    record.expect(await adapted.restarts() == 1, "an engine restarted")
    for name, reason in reasons.items():
        print(f"{name}: {reason}")


def _lags(lags_s: Sequence[float]) -> str:
    if not lags_s:
        return "no status differed"
    middle = lags_s[len(lags_s) // 2]
    return f"statuses followed after {middle:.1f} s (median), {lags_s[-1]:.1f} s at most"
