"""The judge's loop: blocks of the gateways' counts, verdicts, and trials that survive a restart."""

import asyncio
import json
from dataclasses import replace

import pytest

from penstock.api.inferenceservice.kind import KIND
from penstock.controller.canary import judge as judges
from penstock.controller.canary.cases import canary_cases
from penstock.controller.canary.error_baselines import ErrorBaselines
from penstock.controller.canary.judge import Judge
from penstock.controller.canary.metric_queries import MetricQueries
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.core.canary.arm import NO_REQUESTS
from penstock.core.canary.bins import EMPTY_BINS, EMPTY_TPOT_BINS
from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import History
from penstock.core.canary.metric_gate import QueryFailure
from penstock.core.canary.moments import Moments
from penstock.core.canary.verdict import Abort, Continue, Extend, MirrorPassed
from penstock.core.spec.service import (
    API_VERSION,
    COHORT_LABEL,
    MANAGED_LABEL,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVICE_LABEL,
)
from penstock.errors import NotFound, Transient

KEY = ("default", "chat")
OLD, NEW = "a" * 8, "b" * 8


class Kube:
    def __init__(self):
        self.config_maps, self.writes, self.is_down, self.is_odd = {}, 0, False, False

    async def get(self, resource, namespace, name):
        if name not in self.config_maps:
            raise NotFound(name)
        return self.config_maps[name]

    async def apply(self, body, *, manager):
        if self.is_down:
            raise Transient("down")
        if self.is_odd:
            raise KeyError("metadata")
        self.writes += 1
        self.config_maps[body["metadata"]["name"]] = json.loads(json.dumps(body))


def child(name, revision, cohort="", **status):
    labels = {SERVICE_LABEL: "chat", REVISION_LABEL: revision, ROLE_LABEL: "serve"}
    if cohort:
        labels[COHORT_LABEL] = cohort
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"uid": "u1", "controller": True}],
        },
        "spec": {"replicas": 1},
        "status": status,
    }  # fmt: skip


class World:
    """A canary and its control, whose request counts and latencies the test sets."""

    def __init__(self):
        self.kube, self.changed, self.now_s = Kube(), [], 0.0
        self.phase = "Judging"
        self.deployments = [child("chat-b", NEW), child("chat-a", OLD)]
        self.pods = [child("new", NEW), child("old", OLD), child("control", OLD, "control")]
        self.arms_of = {f"default/{name}": NO_REQUESTS for name in ("new", "old", "control")}
        self.counted, self.corrupted_of = Counts(), {}
        self.metrics, self.answer, self.queries = [], 1.0, []
        self.metrics_of_process = OperatorMetrics()
        self.failures = Failures(self.metrics_of_process)
        self.restart_operator()

    def restart_operator(self):
        self.judge = Judge(
            self.kube,
            self,
            MetricQueries(self),
            services=lambda: {KEY: self.body()},
            cases=lambda: canary_cases(
                {KEY: self.body()}, self.deployments, self.pods, self.failures
            ),
            changed=self.changed.append,
            failures=self.failures,
        )

    def arms(self, key):
        return dict(self.arms_of)

    def counts(self, key):
        return self.counted

    def corrupted(self, pods):
        return sum(self.corrupted_of.get(pod, 0) for pod in pods)

    async def ask(self, server, query):
        self.queries.append((server, query))
        return self.answer

    def body(self):
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "name": "chat", "namespace": "default", "uid": "u1", "generation": 1,
                "creationTimestamp": "2025-12-31T00:00:00Z",
            },
            "spec": {"model": {"uri": "pvc://models"}, "rollout": {
                "strategy": "Canary",
                "canary": {"metrics": self.metrics, "mirror": {"duration": "30s"}},
            }},
            "status": {
                "rollout": {"phase": self.phase}, "stableRevision": OLD, "candidateRevision": NEW,
            },
        }  # fmt: skip

    async def block(self, *, new=0.0, old=0.0, requests=20, length_s=10.0):
        """Add requests to both arms and run a tick. new, old: mean log of the TTFT in seconds."""
        self.now_s += length_s
        for pod, level in (("new", new), ("control", old), ("old", 9.0)):
            logs = [level + 0.1 * (i % 5 - 2) for i in range(requests)]
            ttft = (Moments.of(logs), *EMPTY_BINS[1:])
            tpot = (Moments.of([0.1 * (i % 5 - 2) for i in range(requests)]), *EMPTY_TPOT_BINS[1:])
            name = f"default/{pod}"
            self.arms_of[name] = self.arms_of[name].plus(
                replace(
                    NO_REQUESTS,
                    requests=requests,
                    ttft=ttft,
                    tpot=tpot,
                    output=Moments.of([1.0] * requests),
                )
            )
        await self.judge.tick(self.now_s)

    def errors(self):
        name = "penstock_operator_unexpected_errors_total"
        return self.metrics_of_process.registry.get_sample_value(name, {"loop": "judge"})

    def judgement(self):
        return self.judge.judgement(KEY, "uid-chat-b")


@pytest.fixture
def world():
    return World()


async def test_the_first_tick_gives_no_verdict_and_the_next_a_block(world):
    await world.block()
    assert (world.judgement(), world.changed) == (None, [])
    await world.block()
    assert isinstance(world.judgement().verdict, Continue)
    assert world.changed == [KEY]
    assert world.judge.judgement(KEY, "uid-chat-a") is None


async def test_a_canary_slower_than_its_control_is_aborted_and_an_equal_one_is_not(world):
    for _ in range(15):
        await world.block(new=0.0)
    assert isinstance(world.judgement().verdict, Continue)
    slow = World()
    for _ in range(15):
        await slow.block(new=1.0)
    assert isinstance(slow.judgement().verdict, Abort)
    (ttft,) = [each for each in slow.judgement().evidence if each["metric"] == "TTFT"]
    assert 1.5 < ttft["effect"] < 2
    assert ttft["low"] > 0


async def test_without_requests_the_trial_is_extended(world):
    for _ in range(5):
        await world.block(requests=0)
    assert isinstance(world.judgement().verdict, Extend)


async def test_a_restarted_operator_resumes_the_trial(world):
    for _ in range(8):
        await world.block(new=0.2)
    before = world.judge._trials[KEY].trial
    world.restart_operator()
    await world.block(new=0.2)  # counts across the restart may be incomplete, so they are skipped
    assert world.judge._trials[KEY].trial == before
    assert world.judgement() is None
    await world.block(new=0.2)
    assert world.judge._trials[KEY].trial.state.judged_s == before.state.judged_s + 10


async def test_a_retried_revision_starts_a_new_trial(world):
    for _ in range(4):
        await world.block()
    world.deployments[0] = child("chat-b2", NEW)
    assert world.judge.judgement(KEY, "uid-chat-b2") is None
    await world.block()
    assert world.judge.judgement(KEY, "uid-chat-b2") is None
    assert world.judge._trials[KEY].trial.state.judged_s == 0


async def test_a_block_that_could_not_be_stored_counts_once(world):
    for _ in range(3):
        await world.block()
    judged_s = world.judge._trials[KEY].trial.state.judged_s
    world.kube.is_down = True
    await world.block()
    assert world.judge._trials[KEY].trial.state.judged_s == judged_s
    world.kube.is_down = False
    await world.block()
    assert world.judge._trials[KEY].trial.state.judged_s == judged_s + 20


async def test_somebody_elses_config_map_is_left_alone(world):
    theirs = {"metadata": {"name": "chat-rollout"}, "data": {"mine": "1"}}
    world.kube.config_maps["chat-rollout"] = theirs
    for _ in range(3):
        await world.block()
    assert isinstance(world.judgement().verdict, Continue)
    assert world.kube.config_maps == {"chat-rollout": theirs}


async def test_pod_faults_abort_the_canary_without_statistics(world):
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "boom"}}
    await world.block()
    world.pods[0] = child("new", NEW, containerStatuses=[{"name": "engine", "state": waiting}])
    await world.block()
    assert world.judgement().verdict.cause == "Gate"
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    world.pods[0] = child("new", NEW, containerStatuses=[{"name": "engine", "lastState": ended}])
    await world.block()
    assert "OOMKilled" in world.judgement().verdict.reason
    world.pods[0] = child("new", NEW)
    world.corrupted_of = {"default/control": 5, "default/new": 4}
    await world.block()
    assert isinstance(world.judgement().verdict, Continue)
    world.corrupted_of = {"default/new": 1}
    await world.block(length_s=2)  # before the block ends
    assert "NaN outputs" in world.judgement().verdict.reason


async def test_blocks_end_after_ten_seconds_at_any_tick_rate(world):
    for _ in range(16):
        await world.block(length_s=2)
    assert len(world.changed) == 3
    assert world.judge._trials[KEY].trial.state.judged_s == 30


async def test_the_baseline_counts_only_errors_of_stable_outside_rollouts(world):
    """The errors of an earlier, rejected canary are not in the baseline of the same stable revision."""
    for phase, requests, errors in [
        ("Stable", 1000, 0), ("Stable", 3000, 2), ("Judging", 4000, 300), ("Rejected", 4000, 300),
        ("Rejected", 6000, 303), ("Starting", 6500, 303), ("Judging", 7000, 310),
    ]:  # fmt: skip
        world.phase, world.counted = phase, Counts(requests, errors)
        await world.block()
    assert world.judge._trials[KEY].trial.state.errors.history == History(4000, 5)


async def test_a_judgement_is_dropped_when_the_phase_ends(world):
    for _ in range(2):
        await world.block()
    world.phase = "RollingBack"
    await world.block()
    assert world.judgement() is None
    assert {MANAGED_LABEL} <= world.kube.config_maps["chat-rollout"]["metadata"]["labels"].keys()


METRIC = {
    "name": "refusals", "server": "http://p:9090", "query": 'x{r="$revision",s="$stable"}',
    "maximum": "0.1", "interval": "20s", "failureLimit": 1,
}  # fmt: skip


async def test_a_metric_is_queried_at_its_interval_and_fails_the_canary(world):
    world.metrics, world.answer = [METRIC], 0.3
    for _ in range(3):
        await world.block()
    query = ("http://p:9090", f'x{{r="{NEW}",s="{OLD}"}}')
    assert world.queries == [query]
    (gate,) = world.judgement().metrics
    assert (gate["state"], gate["message"]) == ("Failing", "0.3, above its maximum 0.1")
    world.restart_operator()  # another operator continues the count
    await world.block()
    await world.block()
    assert world.queries == [query] * 2
    assert world.judgement().verdict == Abort(
        "metric refusals: 0.3, above its maximum 0.1; 2 of 2 measurements failed, "
        "failureLimit is 1",
        "Gate",
    )


async def test_an_unreadable_metric_is_reported(world):
    world.metrics, world.answer = [METRIC], QueryFailure("the query is wrong")
    for _ in range(3):
        await world.block()
    assert isinstance(world.judgement().verdict, Continue)
    assert world.judgement().metrics[0]["state"] == "Unreadable"
    assert world.judgement().metrics[0]["message"] == "the query is wrong"


async def test_copies_are_judged_for_faults_only(world):
    world.phase = "Mirroring"
    await world.block()
    for _ in range(2):
        await world.block(new=2.0)
        assert isinstance(world.judgement().verdict, Continue)
    await world.block(new=2.0)
    assert isinstance(world.judgement().verdict, MirrorPassed)
    assert world.judgement().evidence == ()
    world.phase = "Judging"
    await world.block()
    await world.block()
    assert world.judge._trials[KEY].trial.canary.requests == 20


async def test_a_restarted_operator_continues_the_mirroring(world):
    world.phase = "Mirroring"
    for _ in range(3):
        await world.block(new=2.0)
    world.restart_operator()
    await world.block(new=2.0)
    await world.block(new=2.0)
    assert isinstance(world.judgement().verdict, MirrorPassed)


async def test_a_fault_of_a_copy_aborts_before_the_block_ends(world):
    world.phase = "Mirroring"
    await world.block()
    world.corrupted_of["default/new"] = 1
    await world.block(length_s=2.0)
    assert isinstance(world.judgement().verdict, Abort)


async def test_a_canary_that_cannot_be_judged_does_not_stop_the_others(world):
    """A service without required fields in its status, Deployment and pod is skipped."""
    other = ("default", "other")
    body = world.body() | {"status": {"rollout": {"phase": "Judging"}, "candidateRevision": NEW}}
    body["metadata"] = body["metadata"] | {"name": "other"}
    odd = {"metadata": {"namespace": "default", "labels": {SERVICE_LABEL: "other"}}}

    def cases():
        services = {other: body, KEY: world.body()}
        return canary_cases(
            services, [odd, *world.deployments], [odd, *world.pods], world.failures
        )  # fmt: skip

    world.judge._cases = cases
    for _ in range(2):
        await world.block()
    assert isinstance(world.judgement().verdict, Continue)
    assert world.errors() == 2


async def test_an_unexpected_error_is_counted_and_the_canary_is_judged_again(world):
    await world.block()
    world.kube.is_odd = True
    await world.block()
    assert (world.judgement(), world.errors()) == (None, 1)
    world.kube.is_odd = False
    await world.block()
    assert isinstance(world.judgement().verdict, Continue)


async def test_a_tick_that_fails_is_followed_by_the_next(world, monkeypatch):
    monkeypatch.setattr(judges, "TICK_S", 0.0)
    ticks, done = 0, asyncio.Event()

    def cases():
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            done.set()
        raise KeyError("status")

    world.judge._cases = cases
    loop = asyncio.create_task(world.judge.run())
    await done.wait()
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop
    assert world.errors() >= 2


async def test_a_baseline_that_fails_does_not_stop_the_others(world):
    world.phase = "Stable"
    bodies = {("default", "odd"): {"status": []}, KEY: world.body()}
    baselines = ErrorBaselines(lambda: bodies, world.counts, world.failures)
    for now_s in (0.0, 60.0):
        baselines.observe(now_s)
    assert baselines._baselines.keys() == {KEY}
    assert world.errors() == 2
