"""Rollouts of an adapter's versions by the placement loop, at a real API server."""

import asyncio
from dataclasses import replace

import pytest
from tests.support.cluster.adapter_stand import SERVICE, AdapterStand, adapter_stand, engine_name

from penstock.cli.rollout import revisions as rollout_revisions
from penstock.cli.rollout.evidence import read_trial
from penstock.cli.rollout.status import follow
from penstock.cli.rollout.target import Refused, parse_target
from penstock.clients.kubernetes.resources import LORA_ADAPTERS
from penstock.controller.adapters.metrics import AdapterMetrics
from penstock.controller.canary.judge import Judge, Judgement
from penstock.controller.canary.metric_queries import MetricQueries
from penstock.controller.process.failures import Failures
from penstock.core.adapters.demand import AdapterCounts
from penstock.core.adapters.versions import adapter_key
from penstock.core.canary.arm import NO_REQUESTS, Arm
from penstock.core.canary.verdict import Abort, Accept, Continue, Verdict
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.rollout import commands
from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.service import Object

pytestmark = pytest.mark.cluster

SQL = parse_target("lora/sql")
URI, OTHER_URI = "pvc://adapters/sql", "pvc://adapters/sql-2"
OLD, NEW = engine_name("sql", URI), engine_name("sql", OTHER_URI)
OLD_REVISION, NEW_REVISION = OLD.partition("@")[2], NEW.partition("@")[2]
REFUSED = {"error": {"message": "rank 64 is above 16", "code": "RankTooLarge"}}
EVIDENCE = {
    "metric": "TTFT", "effect": 0.5, "canarySamples": 9, "controlSamples": 90, "eValue": 2.0,
    "verdict": "Undecided",
}  # fmt: skip


@pytest.fixture
async def stand(kube, namespace):
    async with adapter_stand(kube, namespace) as made:
        yield made


async def until(stand: AdapterStand, phase: str, timeout_s: int = 20) -> Object:
    """Wait until the rollout of the adapter is in this phase. Returns its status."""
    status: Object = {}
    for _ in range(timeout_s * 20):
        status = (await stand.get("sql")).get("status", {})
        if (status.get("rollout") or {}).get("phase") == phase:
            return status
        await asyncio.sleep(0.05)
    raise AssertionError(status)


async def start_canary(stand: AdapterStand) -> Object:
    """An adapter with requests, whose new version is being judged. Returns the status."""
    await stand.add_engine("chat-a")
    stand.counts = {OLD: AdapterCounts()}
    await stand.create("sql", placement={"minReplicas": 1})
    await stand.until("sql", Loaded="AllLoaded")
    stand.counts = {OLD: AdapterCounts(arrivals=500, in_flight=1)}
    await stand.passes()
    await stand.change("sql", model={"uri": OTHER_URI})
    return await until(stand, "Judging")


def judge(stand: AdapterStand, status: Object, verdict: Verdict) -> None:
    """Give the judge's verdict on the canary."""
    assert stand.placer is not None
    (case,) = stand.placer.rollouts.cases()
    assert case.key == adapter_key(stand.namespace, "sql")
    assert case.trial_id.split("/")[1:] == [NEW_REVISION, status["versions"][0]["startTime"]]
    assert (case.sides.canary, case.sides.control) == ({NEW}, {OLD})
    stand.judgements[case.key, case.trial_id] = Judgement(case.trial_id, verdict, (EVIDENCE,))


async def order(stand: AdapterStand, action: commands.Action, revision: str) -> None:
    text = commands.format_command(action, revision, "1")
    patch = {"metadata": {"annotations": {commands.ANNOTATION: text}}}
    await stand.kube.merge(LORA_ADAPTERS, stand.namespace, "sql", patch, manager="test")


def series(stand: AdapterStand) -> dict[tuple[str, ...], float]:
    """Series of rollouts, by the metric's name and labels after the service."""
    assert stand.placer is not None
    return {
        (sample.name.removeprefix("penstock_operator_adapter_"), *list(sample.labels.values())[1:]):
            sample.value
        for family in AdapterMetrics(stand.placer).collect()
        for sample in family.samples
        if "adapter" in sample.labels
    }  # fmt: skip


async def test_metrics_of_a_rollout(stand: AdapterStand) -> None:
    status = await start_canary(stand)
    judge(stand, status, Continue("nothing yet", 0.05))
    await stand.until("sql", RolledOut="Judging")
    for _ in range(100):
        if len(found := series(stand)) == 7:
            break
        await asyncio.sleep(0.05)
    started_s = parse_timestamp(status["rollout"]["phaseTransitionTime"])
    deadline_s = found.pop(("rollout_deadline_timestamp_seconds", "sql"))
    assert deadline_s == pytest.approx(started_s + CanarySpec().max_duration_s, abs=2)
    assert found == {
        ("rollout_phase", "sql", "Judging"): 1,
        ("canary_weight_ratio", "sql"): 0.05,
        ("canary_e_value", "sql", "TTFT"): 2.0,
        ("canary_effect_ratio", "sql", "TTFT"): 0.5,
        ("canary_samples", "sql", "TTFT", "canary"): 9,
        ("canary_samples", "sql", "TTFT", "control"): 90,
    }
    judge(stand, status, Accept("it is as good"))
    await until(stand, "Stable")
    assert series(stand) == {}


def shares(status: Object) -> dict[str, int]:
    return {each["uri"]: each["percent"] for each in status["traffic"]}


async def test_a_canary_is_judged_and_promoted(stand: AdapterStand) -> None:
    status = await start_canary(stand)
    engine = stand.engines["chat-a"]
    assert engine.entries.keys() == {OLD, NEW}
    assert shares(status) == {URI: 95, OTHER_URI: 5}
    assert (status["revision"], status["stableRevision"]) == (OLD_REVISION, OLD_REVISION)
    status = await stand.until("sql", RolledOut="Judging", Reconciling="Judging", Ready="Ready")
    judge(stand, status, Accept("it is as good"))
    status = await until(stand, "Stable")
    assert shares(status) == {OTHER_URI: 100}
    assert status["rollout"]["evidence"] == [EVIDENCE]
    assert engine.entries.keys() == {NEW}
    status = await stand.until("sql", RolledOut="Stable", Loaded="AllLoaded", Reconciling="Settled")
    assert status["revision"] == NEW_REVISION
    await stand.until_event("sql", "Normal", "RolloutStarting")
    await stand.until_event("sql", "Normal", "RolloutStable")
    version = await stand.version("sql")
    for _ in range(3):
        await stand.placer.tick()
    assert await stand.version("sql") == version


async def test_requests_in_flight_are_enough_for_a_canary(stand: AdapterStand) -> None:
    """Gateways have reported once: how often requests come is not known yet."""
    await stand.add_engine("chat-a")
    stand.counts = {OLD: AdapterCounts(arrivals=500, in_flight=4)}
    await stand.create("sql", placement={"minReplicas": 1})
    await stand.until("sql", Loaded="AllLoaded")
    await stand.change("sql", model={"uri": OTHER_URI})
    status = await until(stand, "Judging")
    assert shares(status) == {URI: 95, OTHER_URI: 5}


async def test_a_canary_found_worse_is_rejected_and_undone_by_the_spec(stand: AdapterStand) -> None:
    status = await start_canary(stand)
    judge(stand, status, Abort("TTFT is +50 %"))
    status = await until(stand, "Rejected")
    assert shares(status) == {URI: 100}
    status = await stand.until("sql", RolledOut="Rejected", Stalled="Rejected", Ready="Ready")
    assert stand.engines["chat-a"].entries.keys() == {OLD}
    await stand.until_event("sql", "Warning", "RolloutRejected")
    await rollout_revisions.undo(stand.kube, stand.namespace, SQL, None, watch=False)
    assert (await stand.get("sql"))["spec"]["model"]["uri"] == URI
    await until(stand, "Stable")
    await stand.until("sql", RolledOut="Stable", Stalled="NotStalled")


async def test_a_version_that_engines_refuse_never_gets_requests(stand: AdapterStand) -> None:
    engine = await stand.add_engine("chat-a")
    await stand.create("sql", placement={"policy": "All"})
    await stand.until("sql", Loaded="AllLoaded")
    engine.refused[NEW] = (400, REFUSED)
    await stand.change("sql", model={"uri": OTHER_URI})
    status = await until(stand, "Rejected")
    assert "rank 64 is above 16" in status["rollout"]["rejected"]["message"]
    assert shares(status) == {URI: 100}
    assert status["trafficGeneration"] == 1
    await stand.until("sql", RolledOut="Rejected", Ready="Ready", Loaded="AllLoaded")
    assert engine.entries.keys() == {OLD}


async def test_a_new_leader_continues_and_a_user_decides(stand: AdapterStand) -> None:
    before = await start_canary(stand)
    await stand.start_placer()
    await order(stand, "pause", NEW_REVISION)
    status = await until(stand, "Paused")
    assert status["versions"] == before["versions"]
    assert shares(status) == {URI: 95, OTHER_URI: 5}
    await order(stand, "promote", NEW_REVISION)
    await until(stand, "Stable")
    await stand.until_true(lambda: stand.engines["chat-a"].entries.keys() == {NEW})


async def test_the_service_sets_how_a_canary_is_judged(stand: AdapterStand) -> None:
    canary = {"minWeightPercent": 20, "sessionAffinity": {"type": "User"}}
    rollout = {"strategy": "Canary", "canary": canary}
    stand.services = {stand.key: stand.service(SERVICE, rollout=rollout)}
    status = await start_canary(stand)
    assert shares(status) == {URI: 80, OTHER_URI: 20}


async def test_copies_with_requests_stay_until_they_end(stand: AdapterStand) -> None:
    status = await start_canary(stand)
    engine = stand.engines["chat-a"]
    engine.entries[OLD]["requests"] = 1
    judge(stand, status, Accept("it is as good"))
    status = await until(stand, "Draining")
    await stand.passes()
    assert engine.entries.keys() == {OLD, NEW}
    assert shares(status) == {OTHER_URI: 100}
    engine.entries[OLD]["requests"] = 0
    await until(stand, "Stable")
    assert engine.entries.keys() == {NEW}


async def test_a_version_on_a_volume_that_engines_lack_takes_nothing_from_the_old_one(
    stand: AdapterStand,
) -> None:
    engine = await stand.add_engine("chat-a")
    await stand.create("sql", placement={"policy": "All"})
    await stand.until("sql", Loaded="AllLoaded")
    await stand.change("sql", model={"uri": "pvc://elsewhere/sql"})
    status = await until(stand, "Rejected")
    assert "spec.engine.lora.sources" in status["rollout"]["rejected"]["message"]
    await stand.until("sql", Accepted="Accepted", RolledOut="Rejected", Ready="Ready")
    assert engine.entries.keys() == {OLD}
    await stand.change("sql", model={"uri": OTHER_URI})
    await stand.until_true(lambda: engine.entries.keys() == {NEW})


async def test_commands_of_users(stand: AdapterStand, capsys: pytest.CaptureFixture[str]) -> None:
    await start_canary(stand)
    kube, namespace = stand.kube, stand.namespace
    assert await follow(kube, namespace, SQL, watch=False)
    out = " ".join(capsys.readouterr().out.split())
    assert f"lora/sql: Canary of revision {NEW_REVISION}: Judging" in out
    assert f"95 % to revision {OLD_REVISION} 5 % to revision {NEW_REVISION}" in out
    with pytest.raises(Refused, match="has no pods of its own"):
        await rollout_revisions.restart(kube, namespace, SQL, watch=False)
    await order(stand, "promote", NEW_REVISION)
    await until(stand, "Stable")
    await rollout_revisions.show(kube, namespace, SQL)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "pvc://" in line]
    assert [row[1] for row in rows] == [NEW_REVISION, OLD_REVISION]
    with pytest.raises(Refused, match="has no revision 00000000"):
        await rollout_revisions.undo(kube, namespace, SQL, "00000000", watch=False)
    await rollout_revisions.undo(kube, namespace, SQL, None, watch=False)
    assert (await stand.get("sql"))["spec"]["model"]["uri"] == URI
    # The adapter had requests a moment ago, though none for the version that has just become stable.
    await until(stand, "Judging")
    await order(stand, "promote", OLD_REVISION)
    await stand.until("sql", RolledOut="Stable")
    await stand.until_true(lambda: stand.engines["chat-a"].entries.keys() == {OLD})


def test_targets_of_commands() -> None:
    assert parse_target("chat").text == "chat"
    assert parse_target("psvc/chat") == parse_target("chat")
    assert parse_target("loraadapter/sql") == SQL
    for wrong in ("pod/chat", "lora/"):
        with pytest.raises(Refused, match="lora/NAME"):
            parse_target(wrong)


class Readings:
    """Counts of gateways, as the judge reads them."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str], dict[str, Arm]] = {}

    def arms(self, key: tuple[str, str]) -> dict[str, Arm]:
        return dict(self.by_key.get(key, {}))

    def counts(self, _key: tuple[str, str]) -> None:
        return None

    def corrupted(self, _pods: object) -> int:
        return 0


async def test_the_judge_compares_the_versions(stand: AdapterStand) -> None:
    await start_canary(stand)
    readings, key = Readings(), adapter_key(stand.namespace, "sql")
    assert stand.placer is not None
    judge = Judge(
        stand.kube,
        readings,
        MetricQueries(None),  # type: ignore[arg-type] - there are no metrics
        services=dict,
        cases=stand.placer.rollouts.cases,
        changed=lambda _: None,
        failures=Failures(stand.metrics),
    )
    await judge.tick(0.0)
    readings.by_key[key] = {
        NEW: replace(NO_REQUESTS, requests=50, errors=40),
        OLD: replace(NO_REQUESTS, requests=200),
    }
    await judge.tick(10.0)
    (case,) = stand.placer.rollouts.cases()
    found = judge.judgement(key, case.trial_id)
    assert found is not None
    assert found.verdict == Abort("40 of 50 requests to the canary failed in one block", "Gate")
    stand.judgements[key, case.trial_id] = found
    status = await until(stand, "Rejected")
    assert status["rollout"]["rejected"]["message"] == found.verdict.reason
    trial = await read_trial(stand.kube, stand.namespace, SQL)
    assert trial is not None
    assert (trial.canary.errors, trial.control.requests) == (40, 200)
