"""Uses the adapters of a service on vLLM one after another and together, and records what happened."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cluster.campaigns.run_record import Record
from tests.support.cluster.adapted_service import (
    CLAIM,
    NAME,
    NUM_TOKENS,
    AdaptedService,
    adapter,
    service,
)
from tests.support.cluster.adapter_folders import BROKEN
from tests.support.engine.merged import greedy_answers

from penstock.clients.machine.clock import monotonic
from penstock.core.spec.service import Object
from penstock.demo.stage import Stage, poll_until
from penstock.local.models_claim import folder_claim

SLOTS = 4  # of one engine
PROMPTS = tuple(tuple(range(start, start + 20)) for start in range(40, 440, 50))
# --enforce-eager: vLLM would compile for longer than the run lasts.
ENGINE: Object = {
    "kvCache": {"memory": "16Mi", "blockSize": 32},
    "extraArgs": ["--enforce-eager"],
}

# Greedy tokens for each prompt, by model name.
Answers = Mapping[str, Sequence[Sequence[int]]]


async def run(
    stage: Stage, model: Path, adapters: Sequence[Path], *, engines: int, within_s: float
) -> Record:
    """Deploy the service and its adapters, ask for each, and remove one. adapters: folders.

    within_s: time limit of the start. Raises TimeoutError.
    """
    record, adapted = Record(), AdaptedService(stage, "VLLM")
    names = {f"lora-{number}": folder for number, folder in enumerate(adapters)}
    answers = greedy_answers(model, {NAME: None, **names}, PROMPTS, NUM_TOKENS)
    stage.mount(folder_claim(CLAIM, adapters[0].parent))
    try:
        await _start(adapted, record, names, engines, within_s)
        await _ask_in_turn(adapted, record, answers)
        await _ask_together(adapted, record, answers)
        await _ask_for_unloaded(adapted, record, answers)
        await _ask_for_broken(adapted, record, answers)
        await _delete_one(adapted, record)
        record.expect(await adapted.restarts() == 0, "an engine restarted")
    finally:
        await adapted.close()
    return record


async def _start(
    adapted: AdaptedService, record: Record, adapters: Mapping[str, Path], engines: int, within_s: float
) -> None:  # fmt: skip
    """Start the service. The first adapter is wanted everywhere, the second once, the others on demand."""
    placements: list[Object] = [
        {"policy": "All"},
        {"policy": "Fixed", "replicas": 1, "eviction": "Never"},
    ]
    placements += [{}] * (len(adapters) - len(placements))
    adapted.stage.apply(
        service(
            ENGINE, runtime={"type": "VLLM"}, terminationGracePeriodSeconds=60,
            resources={"limits": {"cpu": 1, "memory": "6Gi"}},
            scaling={"minReplicas": engines, "maxReplicas": engines},
        ),
        *(
            adapter(name, folder.name, **placement)
            for (name, folder), placement in zip(adapters.items(), placements, strict=True)
        ),
    )  # fmt: skip
    took_s = await adapted.stage.wait_for_engines(NAME, engines, within_s=within_s)
    record.add("start", took_s, f"{engines} engines are ready")
    started_s = monotonic()
    for name in list(adapters)[:2]:
        await adapted.wait_for(name, within_s=60, Loaded="AllLoaded", Ready="Ready")
    record.add("first two adapters", monotonic() - started_s, await _copies(adapted, record))


async def _ask_in_turn(adapted: AdaptedService, record: Record, answers: Answers) -> None:
    """Ask each model for the first prompt, and then for the others, twice."""
    for round_number in (1, 2):
        for name in answers:
            had = {each.partition("@")[0] for each, _ in await adapted.on_engines()}
            started_s = monotonic()
            first = await _equal(adapted, record, answers, name, [0])
            took_s, started_s = monotonic() - started_s, monotonic()
            others = await _equal(adapted, record, answers, name, range(1, len(PROMPTS)))
            warm_s = (monotonic() - started_s) / (len(PROMPTS) - 1)
            cold = "" if name == NAME or name in had else ", loaded on demand"
            result = (
                f"{first + others} of {len(PROMPTS)} answers equal{cold}; "
                f"{warm_s:.2f} s for each further one; {await _copies(adapted, record)}"
            )
            record.add(f"{name}, round {round_number}", took_s, result)
            equal = first + others == len(PROMPTS)
            record.expect(equal, f"{name}: answers are not its own")


async def _ask_together(adapted: AdaptedService, record: Record, answers: Answers) -> None:
    """Ask all adapters at the same time, for each prompt in turn: more adapters than slots.

    Then the model without an adapter beside two of them. That is only counted: vLLM's operators for CPU
    compute it with the adapter in the last place of the batch.
    """
    adapters = [name for name in answers if name != NAME]
    await _ask_side_by_side(adapted, record, answers, "all adapters at once", adapters)
    together = [NAME, *adapters[:2]]
    await _ask_side_by_side(adapted, record, answers, "the model beside two adapters", together)
    started_s = monotonic()
    await adapted.wait_for_true_statuses(within_s=15)
    record.add("statuses that list what /v1/models has", monotonic() - started_s, "equal")


async def _ask_side_by_side(
    adapted: AdaptedService, record: Record, answers: Answers, what: str, names: Sequence[str]
) -> None:
    started_s, equal = monotonic(), Counter[str]()
    for index in range(len(PROMPTS)):
        counts = await asyncio.gather(
            *(_equal(adapted, record, answers, name, [index]) for name in names)
        )
        equal.update(dict(zip(names, counts, strict=True)))
    counted = ", ".join(f"{name} {equal[name]}" for name in names)
    result = f"equal of {len(PROMPTS)}: {counted}; {await _copies(adapted, record)}"
    record.add(what, monotonic() - started_s, result)
    for name in names:
        wrong = len(PROMPTS) - equal[name]
        record.expect(name == NAME or wrong == 0, f"{name}: {wrong} answers are not its own")


async def _ask_for_unloaded(adapted: AdaptedService, record: Record, answers: Answers) -> None:
    """Unload all copies by hand, and ask for one before the gateway knows."""
    await adapted.unload_by_hand()
    started_s = monotonic()
    equal = await _equal(adapted, record, answers, "lora-1", [0])
    record.add("lora-1, unloaded by hand", monotonic() - started_s, f"{equal} of 1 answers equal")
    await adapted.wait_for("lora-0", within_s=30, Loaded="AllLoaded", Ready="Ready")


async def _ask_for_broken(adapted: AdaptedService, record: Record, answers: Answers) -> None:
    """Ask for adapters that vLLM cannot load; then for a good one."""
    names = (*BROKEN, "missing")
    adapted.stage.apply(*(adapter(name, name) for name in names))
    for name in names:
        started_s = monotonic()
        status, body = await adapted.ask(name, PROMPTS[0])
        message = body.get("error", {}).get("message", body)
        record.add(name, monotonic() - started_s, f"{status}: {message}")
        record.expect(status == 424, f"{name}: {status}")
    for name in names:
        adapted.stage.kubectl(
            "wait", "--for=condition=Ready=False", f"lora/{name}", "--timeout=60s"
        )
    adapted.stage.kubectl("delete", "lora", *names)
    equal = await _equal(adapted, record, answers, "lora-1", [0])
    record.expect(equal == 1, "lora-1 after the broken ones: the answer is not its own")


async def _delete_one(adapted: AdaptedService, record: Record) -> None:
    """Delete an adapter that every engine has: it is unloaded, and its name is unknown."""
    deleted = "lora-0"
    adapted.stage.kubectl("delete", "lora", deleted)

    async def is_gone() -> bool:
        copies = await adapted.on_engines()
        status, _ = await adapted.ask(deleted, PROMPTS[0])
        return status == 404 and not any(name.startswith(f"{deleted}@") for name, _ in copies)

    took_s = await poll_until(is_gone, within_s=60, what=f"{deleted} gone")
    record.add(f"{deleted} deleted", took_s, f"404; {await _copies(adapted, record)}")


async def _equal(
    adapted: AdaptedService, record: Record, answers: Answers, name: str, indices: Sequence[int]
) -> int:
    """Ask a model for prompts, and count the answers that are those of its own weights."""
    equal = 0
    for index in indices:
        status, body = await adapted.ask(name, PROMPTS[index])
        record.expect(status == 200, f"{name}: {status} {body}")
        tokens = body["choices"][0]["token_ids"] if status == 200 else []
        equal += tokens == answers[name][index]
    return equal


async def _copies(adapted: AdaptedService, record: Record) -> str:
    """The adapters that /v1/models of the engines lists."""
    copies = await adapted.on_engines()
    for pod in {pod for _, pod in copies}:
        loaded = sum(each == pod for _, each in copies)
        record.expect(loaded <= SLOTS, f"{loaded} adapters in {SLOTS} slots")
    return " ".join(sorted(name.partition("@")[0] for name, _ in copies))
