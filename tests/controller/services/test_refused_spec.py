"""A spec that is refused waits: the service is judged, scaled and rolled back by the last accepted one."""

from dataclasses import replace

import pytest
from tests.controller.disruption_budgets import listed_budgets

from penstock.cli.rollout import revisions as rollout_revisions
from penstock.cli.rollout.target import parse_target
from penstock.clients.kubernetes.resources import DEPLOYMENTS, INFERENCE_SERVICES, PODS
from penstock.controller.canary.cases import canary_cases
from penstock.controller.canary.judge import Judge
from penstock.controller.canary.metric_queries import MetricQueries
from penstock.controller.http.recorder import Recorder
from penstock.controller.names.model_names import ModelNames
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.scaling.kv_scaler import KvScaler
from penstock.controller.scaling.learned_state import LearnedStateStore
from penstock.controller.scaling.objective_scaler import ObjectiveScaler
from penstock.controller.scaling.scale_targets import scale_targets
from penstock.controller.scaling.scaler import Scaler
from penstock.controller.services.reconciler import Reconciler
from penstock.core.canary.arm import NO_REQUESTS
from penstock.core.canary.bins import EMPTY_BINS, EMPTY_TPOT_BINS
from penstock.core.canary.counts import Counts
from penstock.core.canary.moments import Moments
from penstock.core.manifests.allowed_pods import DEFAULT_LIMITS, PodLimits
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.report import ScalingReport
from penstock.core.scaling.signals import EngineReading, Observation, PodView
from penstock.core.spec.service import REVISION_LABEL, ROLE_LABEL, SERVE

pytestmark = pytest.mark.cluster

NETWORK = {"spec": {"hostNetwork": True}}
NO_IMAGE = {"spec": {"containers": [{"name": "engine", "image": ""}]}}
EMPTY = Histogram((1.0,), (0, 0), 0.0)
BLOCK_S = 10.0
CHAT = parse_target("chat")
AT = "2026-01-01T00:00:00Z"


class Operator:
    """Reconciler, judge and scaler of a stand. The test sets the KV use and the latency of the canary.

    ttft: mean log of the canary's TTFT in seconds; the control's is 0.
    """

    def __init__(self, stand):
        self.stand, self.now_s, self.children = stand, 0.0, ([], [])
        self.arms_of, self.kv_usage, self.ttft = {}, 0.0, 0.0
        self.restart()

    def restart(self, limits=DEFAULT_LIMITS):
        stand, failures = self.stand, Failures(OperatorMetrics())
        self.judge = Judge(
            stand.kube, self, MetricQueries(None), services=lambda: stand.services,
            cases=lambda: canary_cases(stand.services, *self.children, failures),
            changed=lambda _: None, failures=failures,
        )  # fmt: skip
        recorder = Recorder()
        by_objectives = ObjectiveScaler(LearnedStateStore(stand.kube), recorder, failures)
        self.scaler = Scaler(
            self, by_objectives, KvScaler(recorder, failures),
            targets=lambda: scale_targets(stand.services, *self.children, failures),
            quotas=list, changed=lambda _: None, failures=failures,
        )  # fmt: skip
        stand.reconciler = Reconciler(
            stand.kube, "penstock", services=lambda: stand.services, names=ModelNames(),
            budgets=listed_budgets(stand.kube),
            scaling=self.scaler.report, judgement=self.judge.judgement, applied_generations=lambda _: {},
            gateway_url="", gone=stand.gone.append, limits=limits,
        )  # fmt: skip

    def arms(self, key):
        return dict(self.arms_of)

    def counts(self, key):
        return Counts()

    def corrupted(self, pods):
        return 0

    async def scrape(self, targets):
        return {
            target.service.key: Observation(
                self.now_s,
                tuple(ready_view(view, self.now_s, self.kv_usage) for view, _ in target.pods),
                target.provisioned,
                by_variant=target.by_variant,
            )
            for target in targets
        }

    async def tick(self):
        """Add a block of requests to each engine, then judge and scale once."""
        stand = self.stand
        stand.services[stand.key] = await stand.body()
        deployments, _ = await stand.kube.list(DEPLOYMENTS, stand.namespace)
        self.children = deployments, await stand.pods()
        self.now_s += BLOCK_S
        candidate = (await stand.status()).get("candidateRevision")
        for pod in self.children[1]:
            is_canary = pod["metadata"]["labels"][REVISION_LABEL] == candidate
            self._count(f"{stand.namespace}/{pod['metadata']['name']}", self.ttft * is_canary)
        await self.judge.tick(self.now_s)
        await self.scaler.tick()

    def _count(self, pod, ttft):
        logs = [ttft + 0.1 * (i % 5 - 2) for i in range(20)]
        self.arms_of[pod] = self.arms_of.get(pod, NO_REQUESTS).plus(
            replace(
                NO_REQUESTS,
                requests=20,
                ttft=(Moments.of(logs), *EMPTY_BINS[1:]),
                tpot=(Moments.of([0.1 * (i % 5 - 2) for i in range(20)]), *EMPTY_TPOT_BINS[1:]),
                output=Moments.of([1.0] * 20),
            )
        )

    async def until(self, holds):
        async def held():
            await self.tick()
            return await holds()

        await self.stand.until(held)

    async def until_phase(self, phase):
        await self.until(lambda: self._is_in(phase))

    async def _is_in(self, phase):
        return (await self.stand.status())["rollout"]["phase"] == phase


def ready_view(view, now_s, usage):
    """The engine as ready for long enough that it counts."""
    reading = EngineReading(
        at_s=now_s, running=1, waiting=0, kv_usage=usage, kv_capacity_tokens=2048,
        prefill_tokens_pending=0, prompt_tokens=0, cached_tokens=0, output_tokens=0, steps=0,
        finished=0, output_tokens_finished=0, preemptions=0, ttft_s=EMPTY, itl_s=EMPTY,
    )  # fmt: skip
    return PodView(view.name, "Ready", now_s - 100, now_s - 100, reading, view.variant)


@pytest.fixture
async def operator(stand):
    """A canary that is judged, with 5 % of the traffic and 5 % for its control."""
    made = Operator(stand)
    await stand.create(rollout={"strategy": "Canary"}, scaling={"maxReplicas": 3})
    await made.until_phase("Stable")
    await stand.change(engine={"seed": 1})
    await made.until_phase("Judging")
    await made.until(lambda: has_shares(stand, 90, 5, 5))
    return made


async def has_shares(stand, *percent):
    return [each["percent"] for each in (await stand.status())["traffic"]] == [*percent]


async def refuse(operator, change, reason):
    """Change the spec to one that is refused, and restart the operator."""
    await operator.stand.change(**change)
    await operator.stand.step()
    operator.restart()
    await operator.tick()
    await operator.stand.step()
    assert await operator.stand.condition("SpecValid") == ("False", reason)
    assert await operator.stand.condition("Stalled") == ("True", reason)
    assert await operator.stand.condition("Ready") == ("True", "Ready")
    assert await has_shares(operator.stand, 90, 5, 5)


REFUSALS = [
    ({"engine": {"extraArgs": ["--port=1"]}}, "UnsupportedByRuntime"),
    ({"template": NETWORK}, "TemplateNotAllowed"),
    ({"template": NO_IMAGE}, "InvalidSpec"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSALS)
async def test_a_bad_canary_is_aborted(operator, change, reason):
    stand, status = operator.stand, await operator.stand.status()
    await refuse(operator, change, reason)
    operator.ttft = 1.0
    await operator.until_phase("Rejected")
    rejected = (await stand.status())["rollout"]["rejected"]
    assert rejected["revision"] == status["candidateRevision"]
    assert "TTFT" in rejected["message"]
    assert await has_shares(stand, 100)
    assert await stand.condition("SpecValid") == ("False", reason)

    # The spec is corrected to another revision, which is rolled out.
    operator.ttft = 0.0
    await stand.change(engine={"seed": 2, "extraArgs": None}, template=None)
    await operator.until_phase("Judging")
    assert await stand.condition("SpecValid") == ("True", "Valid")


async def test_a_canary_that_crashes_is_rolled_back(operator):
    stand, status = operator.stand, await operator.stand.status()
    await refuse(operator, *REFUSALS[1])
    (pod,) = (
        pod
        for pod in await stand.pods()
        if pod["metadata"]["labels"][REVISION_LABEL] == status["candidateRevision"]
        and pod["metadata"]["labels"][ROLE_LABEL] == SERVE
    )
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "boom"}}
    engine = {"name": "engine", "image": "i", "imageID": "", "ready": False, "restartCount": 2}
    await stand.kube.merge(
        PODS, stand.namespace, pod["metadata"]["name"],
        {"status": {"conditions": [], "containerStatuses": [engine | {"state": waiting}]}},
        manager="test", sub="status",
    )  # fmt: skip
    await operator.until_phase("Rejected")
    assert "crashed 2 times" in (await stand.status())["rollout"]["rejected"]["message"]
    assert await has_shares(stand, 100)


async def test_a_good_canary_is_promoted_and_the_corrected_spec_changes_nothing(operator):
    stand, status = operator.stand, await operator.stand.status()
    await refuse(operator, *REFUSALS[0])
    await stand.order("promote", status["candidateRevision"])
    await operator.until_phase("Stable")
    assert (await stand.status())["stableRevision"] == status["candidateRevision"]
    assert (await stand.condition("RolledOut")) == ("False", "UnsupportedByRuntime")
    await stand.change(engine={"extraArgs": None})
    await stand.step()
    assert (await stand.condition("RolledOut")) == ("True", "Stable")


async def test_the_number_of_replicas_follows_the_load_within_the_accepted_bounds(operator):
    stand = operator.stand
    change, reason = REFUSALS[0]
    await refuse(operator, change | {"scaling": {"maxReplicas": 9}}, reason)
    operator.kv_usage = 1.0

    async def has_grown():
        return (await stand.status())["desiredReplicas"] == 3

    await operator.until(has_grown)
    for _ in range(3):
        await operator.tick()
        await stand.step()
    assert (await stand.status())["desiredReplicas"] == 3
    assert await stand.condition("ScalingActive") == ("True", "Active")
    found, _ = await stand.kube.list(DEPLOYMENTS, stand.namespace)
    assert 3 in [each["spec"]["replicas"] for each in found]

    await stand.change(engine={"extraArgs": None})  # now the new bounds are accepted
    await stand.step()

    async def has_grown_further():
        return (await stand.status())["desiredReplicas"] > 3

    await operator.until(has_grown_further)


async def test_an_autoscaler_sets_the_replicas_of_a_refused_service(stand):
    operator = Operator(stand)
    await stand.create(scaling={"mode": "External"}, replicas=1)
    await operator.until_phase("Stable")
    await stand.change(template=NETWORK)
    await stand.step()
    await stand.kube.scale(INFERENCE_SERVICES, *stand.key, 2, manager="hpa")

    async def is_scaled():
        found, _ = await stand.kube.list(DEPLOYMENTS, stand.namespace)
        return [each["spec"]["replicas"] for each in found] == [2]

    await operator.until(is_scaled)
    assert await stand.condition("SpecValid") == ("False", "TemplateNotAllowed")


async def test_a_variant_that_does_not_suit_stops_nothing(stand):
    wanted = ScalingReport(1, "load", "ScaleUp", True, AT, (), {"a": 1})
    stand.reconciler = Reconciler(
        stand.kube, "penstock", services=dict, names=ModelNames(),
        budgets=listed_budgets(stand.kube), scaling=lambda *_: wanted,
        judgement=lambda *_: None, applied_generations=lambda _: {}, gateway_url="", gone=stand.gone.append,
    )  # fmt: skip
    variants = [variant("a", 2)]
    await stand.create(
        variants=variants, engine={"parallelism": {"tensor": 2}}, scaling={"maxReplicas": 2},
        objectives={"ttft": "2s", "attainment": "0.95"},
    )  # fmt: skip
    await stand.until_phase("Stable")
    await stand.change(variants=[*variants, variant("b", 4)], scaling={"maxReplicas": 9})
    await stand.step()
    assert await stand.condition("SpecValid") == ("False", "UnsupportedByRuntime")
    wanted = ScalingReport(3, "load", "ScaleUp", True, AT, (), {"a": 3})
    for _ in range(3):
        await stand.step()
    found, _ = await stand.kube.list(DEPLOYMENTS, stand.namespace)
    assert [each["spec"]["replicas"] for each in found] == [2]
    assert [each["name"] for each in (await stand.status())["variants"]] == ["a"]
    (target,) = scale_targets(
        {stand.key: await stand.body()}, found, [], Failures(OperatorMetrics())
    )
    assert [*target.service.placed] == ["a"]
    assert target.service.scaling.max_replicas == 2


def variant(name, accelerators):
    limits = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(accelerators)}
    return {"name": name, "pricePerHour": "1", "resources": {"limits": limits}}


async def test_an_operator_without_the_copy_was_upgraded(operator):
    """The recorded revision and the other fields of the current spec are then gone on with."""
    stand, status = operator.stand, await operator.stand.status()
    change, reason = REFUSALS[0]
    await stand.change(**change)
    conditions = [
        each | {"status": "False"} if each["type"] == "SpecValid" else each
        for each in status["conditions"]
    ]
    await stand.kube.merge(
        INFERENCE_SERVICES, *stand.key,
        {"status": {"acceptedSpec": None, "conditions": conditions}}, manager="test", sub="status",
    )  # fmt: skip
    await refuse(operator, {}, reason)
    operator.ttft = 1.0
    await operator.until_phase("Rejected")
    rejected = (await stand.status())["rollout"]["rejected"]
    assert rejected["revision"] == status["candidateRevision"]


async def test_a_canary_beyond_new_limits_goes_back_to_stable(stand):
    operator = Operator(stand)
    operator.restart(PodLimits(allow_unrestricted_templates=True))
    await stand.create(rollout={"strategy": "Canary"})
    await operator.until_phase("Stable")
    await stand.change(template=NETWORK)
    await operator.until_phase("Judging")
    operator.restart()
    await operator.until_phase("RollingBack")
    assert await stand.condition("SpecValid") == ("False", "TemplateNotAllowed")
    await operator.until_phase("Rejected")
    assert await has_shares(stand, 100)


async def test_undo_restores_the_accepted_spec(operator):
    stand, before = operator.stand, await operator.stand.body()
    await refuse(operator, *REFUSALS[2])
    await rollout_revisions.undo(stand.kube, stand.namespace, CHAT, None, watch=False)
    assert (await stand.body())["spec"] == before["spec"]
    await stand.step()
    assert await stand.condition("SpecValid") == ("True", "Valid")
    assert (await stand.status())["rollout"]["phase"] == "Judging"


async def test_a_spec_that_was_never_accepted_makes_nothing(stand):
    await stand.create(engine={"extraArgs": ["--port=1"]})
    await stand.step()
    assert await stand.condition("Ready") == ("False", "UnsupportedByRuntime")
    assert "acceptedSpec" not in await stand.status()
    assert await stand.pods() == []
