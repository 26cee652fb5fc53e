"""A service with objectives: sized under load, explained, recorded, replayed, across a restart."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster.penstock_command import penstock, run_penstock
from tests.support.cluster.quiet_writes import writes_while_quiet

from penstock.chart.names import NAMESPACE, OPERATOR
from penstock.clients.kubernetes.resources import CONFIG_MAPS
from penstock.core.manifests.stored_record import LEARNED
from penstock.core.scaling.recording import Recording
from penstock.demo.load import End, Load, Workload, corpus
from penstock.demo.stage import Stage, poll_until
from penstock.errors import NotFound

ROOT = Path(__file__).parents[2]
SERVICE = "timely"
SEED = 1

pytestmark = pytest.mark.e2e


async def learned_state(stage: Stage) -> dict[str, Any]:
    """Read the service's stored learned state; empty if there is none."""
    try:
        body = await stage.kube.get(CONFIG_MAPS, "default", LEARNED.name(SERVICE))
    except NotFound:
        return {}
    record: dict[str, Any] = json.loads(body["data"][LEARNED.key])
    return record


async def recorded(stage: Stage, file: Path, seconds: int) -> Recording:
    await penstock(stage, "record", SERVICE, "--for", f"{seconds}s", "-o", str(file))
    with file.open() as lines:
        return Recording.read(lines)


async def test_sized_explained_recorded_replayed_and_remembered(
    stage: Stage, tmp_path: Path
) -> None:
    stage.kubectl("apply", "-f", str(Path(__file__).with_name("service.yaml")))
    await stage.wait_for_engines(SERVICE, 1, within_s=120)
    file = tmp_path / "load.jsonl"
    busy = Workload(SERVICE, corpus(ROOT), prompt_words=110, max_tokens=64, seed=SEED)
    calm = replace(busy, think_s=1.0)
    url = stage.cluster.gateway_url
    async with Load(url, calm) as load, Load(url, busy) as crowd, asyncio.TaskGroup() as group:
        recording = group.create_task(recorded(stage, file, 40))
        load.set_clients(2)
        await asyncio.sleep(10)
        crowd.set_clients(40)
        took_s = await stage.wait_until(
            lambda view: view.scaling.get("desiredReplicas", 1) > 1,
            SERVICE, within_s=60, what="a decision",
        )  # fmt: skip
        crowd.set_clients(0)
        load.set_clients(4)  # enough to learn from, and the processor is free for the second engine
        await stage.wait_until(
            lambda view: view.ready > 1, SERVICE, within_s=90, what="two engines"
        )
        await poll_until(
            lambda: is_learned(stage), within_s=120, what="the learned state of the load"
        )
        seen = await recording
        await crowd.finish()
        await load.finish()
    assert {outcome.end for outcome in load.outcomes + crowd.outcomes} == {End.DONE}
    view = await stage.view(SERVICE)
    assert {"capacity", "need"} <= {step["step"] for step in view.scaling["trail"]}
    numbers = [line.decision.desired for line in seen.lines]
    print(f"seed {SEED}: more than one replica after {took_s:.1f} s of load; decided: {numbers}")
    await check_replay(stage, file)
    await check_explanation(stage)
    await check_restart(stage, tmp_path / "restart.jsonl")


async def test_an_idle_service_is_not_written_to(stage: Stage) -> None:
    """An idle service causes no writes, before and after a restart of the operator."""
    stage.kubectl("apply", "-f", str(Path(__file__).with_name("service.yaml")))
    await poll_until(lambda: is_begun(stage), within_s=120, what="the first record")
    await stage.wait_until(
        lambda view: "no request has come" in view.scaling.get("message", ""),
        SERVICE, within_s=60, what="the decision on a service without requests",
    )  # fmt: skip
    await asyncio.sleep(4)
    assert await writes_while_quiet(stage, SERVICE, seconds=10) == []


async def is_begun(stage: Stage) -> bool:
    return bool(await learned_state(stage))


async def is_learned(stage: Stage) -> bool:
    record = await learned_state(stage)
    return bool(record and record["watch"]["fit"]["windows"] and record["output"]["weight"])


async def check_replay(stage: Stage, file: Path) -> None:
    assert "all identical" in await penstock(stage, "replay", str(file))
    other = await penstock(
        stage, "replay", str(file), "--policy", "hpa-kv", "--param", "target=0.5"
    )
    assert "hpa-kv" in other
    assert "differs" in await penstock(stage, "replay", str(falsify(file)), code=1)


def falsify(file: Path) -> Path:
    """Return the recording with one number of a decision changed."""
    spoilt = file.with_suffix(".spoilt")
    spoilt.write_text(file.read_text().replace('"desired":1', '"desired":2', 1))
    return spoilt


async def check_explanation(stage: Stage) -> None:
    why = await penstock(stage, "explain", SERVICE)
    assert "capacity" in why
    print(why)
    changed = await penstock(stage, "explain", SERVICE, "--set", "minReplicas=3")
    assert "3 replicas" in changed
    refused = await penstock(stage, "explain", SERVICE, "--set", "replicas=3", code=1)
    assert "no setting 'replicas'" in refused


async def check_restart(stage: Stage, file: Path) -> None:
    """Kill the operator: the next one starts with the stored learned state."""
    before = await learned_state(stage)
    selector = ("-n", NAMESPACE, "-l", f"app.kubernetes.io/name={OPERATOR}")
    stage.kubectl("delete", "pod", *selector, "--grace-period=0", "--force")
    recordings: list[Recording] = []

    async def is_back() -> bool:
        result = await run_penstock(stage, "record", SERVICE, "--for", "1s", "-o", str(file))
        if result.code == 0:
            with file.open() as lines:
                recordings.append(Recording.read(lines))
        return bool(recordings)

    took_s = await poll_until(is_back, within_s=90, what="the next operator decides")
    state = recordings[0].header.state
    print(f"the next operator decided {took_s:.1f} s later")
    assert len(state.load.arrivals.history) < 60
    assert list(state.startup.times_s)[: len(before["start_ups_s"])] == before["start_ups_s"]
    assert state.fit.windows >= before["watch"]["fit"]["windows"] > 0
    assert state.traffic.output.value == pytest.approx(before["output"]["value"], rel=0.2)
