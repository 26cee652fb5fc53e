"""The series of services: where their values come from, and that none outlives its service."""

import json
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.controller.services.service_bodies import AT, KEY, NEW, OLD, child, rolled_out_service
from tests.support.specs.service_spec import service_spec

from penstock.api.conversion.convert import InvalidService, to_core
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.services.metrics import ServiceMetrics, is_at_maximum
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.rule import Decision, TrailEntry
from penstock.core.scaling.signals import GatewayReading, Missing, Observation, PodView
from penstock.core.spec.service import ScalingSpec
from penstock.observability.metrics import operator as specs
from penstock.observability.metrics.fetches import MODEL_FETCHES

SERVICE = service_spec(uid="u1")
EMPTY = Histogram((0.05, 0.1), (0, 0, 0), 0.0)
NO_REQUESTS = GatewayReading(
    at_s=0.0, queued=0, queued_prompt_tokens=0, in_flight=0, in_flight_prefill_tokens=0,
    oldest_wait_s=0.0, arrivals=0, prompt_tokens=0, ended=0, output_tokens=0, attended_tokens=0,
    late=0, shed=0, failed=0, ttft_s=EMPTY, tpot_s=EMPTY,
)  # fmt: skip


class World:
    """Inputs of the metrics that the test sets: services, their children, and the gateways' counts."""

    def __init__(self):
        self.services = {KEY: rolled_out_service()}
        self.deployments = [child("chat-a", OLD), child("chat-b", NEW)]
        self.pods = [child("old", OLD, is_ready=True), child("new", NEW)]
        self.readings = {KEY: NO_REQUESTS}
        self.process = OperatorMetrics()
        self.metrics = ServiceMetrics(
            services=lambda: self.services,
            children=lambda: (self.deployments, self.pods),
            reading=self.readings.get,
            failures=Failures(self.process),
        )
        self.process.add_collector(self.metrics)
        self.metrics.is_leading = True

    def decide(self, desired, code="ScaleUp", *, valid=True, provisioned=2, trail=()):
        pod = PodView("old", "Ready", 0.0, 1.0, Missing("old", "gone"))
        observation = Observation(0.0, (pod,), provisioned)
        decision = Decision(desired, "why", code, trail, valid)
        self.metrics.observe_decision(SERVICE, observation, decision)

    def samples(self):
        """Samples with the label service: name and the other labels, as in the spec -> value."""
        found, order = {}, {spec.name: spec.label_names[1:] for spec in specs.SERVICES}
        for family in text_string_to_metric_families(self.process.render()[0].decode()):
            for sample in family.samples:
                if sample.labels.get("service") == "default/chat":
                    labels = (sample.labels[name] for name in order[sample.name])
                    found[sample.name, *labels] = sample.value
        return found


def value(world, spec, *labels):
    return world.samples().get((spec.name, *labels))


def test_replicas_are_counted_by_revision():
    world = World()
    assert value(world, specs.PROVISIONED_REPLICAS, OLD, "") == 1
    assert value(world, specs.REPLICAS, NEW, "") == 1
    assert value(world, specs.READY_REPLICAS, OLD, "") == 1
    assert value(world, specs.READY_REPLICAS, NEW, "") == 0
    assert value(world, specs.UNREADY_S) > 0
    assert value(world, specs.DESIRED_REPLICAS, "") == 2


def test_what_is_scaled_to_zero_has_series():
    world = World()
    world.deployments[0]["spec"]["replicas"] = 0
    world.pods = []
    assert value(world, specs.PROVISIONED_REPLICAS, OLD, "") == 0
    assert value(world, specs.READY_REPLICAS, OLD, "") == 0


def test_status_gives_conditions_traffic_and_the_rollout():
    world = World()
    assert value(world, specs.CONDITION_STATUS, "Ready", "True") == 1
    assert value(world, specs.TRAFFIC_WEIGHT, NEW, "Primary") == 0.2
    assert value(world, specs.ROLLOUT_PHASE, "Judging") == 1
    assert value(world, specs.ROLLOUT_PHASE_START) == 1767225600
    assert value(world, specs.CANARY_E_VALUE, NEW, "TTFT") == 3.5
    assert value(world, specs.CANARY_EFFECT, NEW, "TTFT") == 0.1
    assert value(world, specs.CANARY_EFFECT_BOUND, NEW, "TTFT", "high") == 0.3
    assert value(world, specs.CANARY_EFFECT_BOUND, NEW, "TTFT", "low") is None
    assert value(world, specs.CANARY_SAMPLES, NEW, "TTFT", "control") == 90
    assert value(world, specs.CANARY_GATE, "quality", "Passing") == 1


def test_a_rollout_has_a_deadline_unless_it_waits_for_a_person():
    world = World()
    body = world.services[KEY]
    body["spec"]["rollout"] = {"strategy": "Canary", "canary": {"maxDuration": "3h"}}
    assert value(world, specs.ROLLOUT_DEADLINE) == 1767225600 + 3 * 3600
    body["status"]["rollout"]["phase"] = "Paused"
    assert value(world, specs.ROLLOUT_DEADLINE) is None


@pytest.mark.parametrize(
    "ending", [{"revision": None}, {"revision": None, "rejected": {"revision": NEW}}]
)
def test_evidence_stays_that_of_the_judged_revision(ending):
    world = World()
    status = world.services[KEY]["status"]
    status["rollout"] |= ending
    if "rejected" not in ending:
        status["stableRevision"] = NEW  # promoted
    assert value(world, specs.CANARY_E_VALUE, NEW, "TTFT") == 3.5


def test_decisions_are_counted_by_reason():
    world = World()
    assert value(world, specs.BLIND) is None
    world.decide(3)
    world.decide(3, "Steady", provisioned=3)
    world.decide(3, "MetricsMissing", provisioned=3, valid=False)
    assert value(world, specs.DECISIONS, "ScaleUp") == 1
    assert value(world, specs.DECISIONS, "Steady") == 1
    assert value(world, specs.LAST_DECISION_REASON, "MetricsMissing") == 1
    assert value(world, specs.LAST_DECISION_REASON, "Steady") is None
    assert value(world, specs.SCALE_STEPS, "up") == 1
    assert value(world, specs.SCALE_STEPS, "down") == 0
    assert value(world, specs.BLIND) == 1
    assert value(world, specs.UNREADABLE_ENGINES) == 1


def test_at_maximum_only_if_more_were_wanted():
    spec = service_spec(scaling=ScalingSpec("Active", 1, 3))
    wanted = (TrailEntry("need", 5, ""), TrailEntry("bounds", 3, ""))
    assert is_at_maximum(spec, Decision(3, "", "ScaleUp", wanted))
    assert not is_at_maximum(spec, Decision(3, "", "Steady", (TrailEntry("need", 3, ""),)))
    spare = (TrailEntry("need", 3, ""), TrailEntry("risk", 4, ""))
    assert not is_at_maximum(spec, Decision(3, "", "Steady", spare))
    assert is_at_maximum(spec, Decision(2, "", "OverBudget", ()))
    assert is_at_maximum(spec, Decision(2, "", "AtMaximum", (TrailEntry("need", 2, ""),)))


def test_phases_are_counted_when_they_begin():
    world = World()
    before = world.services[KEY]
    after = rolled_out_service(phase="Growing")
    world.metrics.observe_change(KEY, None, before)
    world.metrics.observe_change(KEY, before, before)
    world.metrics.observe_change(KEY, before, after)
    world.services[KEY] = after
    assert value(world, specs.ROLLOUT_TRANSITIONS, "Growing") == 1
    assert value(world, specs.ROLLOUT_TRANSITIONS, "Judging") == 0


def test_attainment_and_error_budget():
    """Two of 100 requests are late (99 ended, one was shed), and half of 10 are within 50 ms."""
    world = World()
    world.metrics.observe_requests()
    assert value(world, specs.ATTAINMENT, "ttft") is None
    world.readings[KEY] = replace(
        NO_REQUESTS, arrivals=100, ended=99, late=2, shed=1,
        tpot_s=Histogram((0.05, 0.1), (5, 4, 0), 0.5),
    )  # fmt: skip
    world.metrics.observe_requests()
    assert value(world, specs.ATTAINMENT, "ttft") == 0.97
    assert value(world, specs.ATTAINMENT, "tpot") == 0.5
    assert round(value(world, specs.ERROR_BUDGET_LEFT, "ttft"), 6) == round(1 - 0.03 / 0.05, 6)
    assert value(world, specs.OBJECTIVE_TARGET) == 0.95
    assert value(world, specs.OBJECTIVE_S, "tpot") == 0.05


def test_every_metric_of_services_has_a_source():
    world = World()
    world.decide(3)
    world.metrics.observe_requests()
    world.readings[KEY] = replace(NO_REQUESTS, arrivals=1, ended=1)
    world.metrics.observe_requests()
    world.metrics.observe_change(KEY, rolled_out_service(phase="Starting"), world.services[KEY])
    world.pods[0]["status"]["initContainerStatuses"] = [ended_fetch(0, DONE)]
    world.metrics.observe_fetches()
    exported = {name for name, *_ in world.samples()}
    assert exported == {name for spec in specs.SERVICES for name in spec.samples}


def test_a_standby_exports_no_series_of_services():
    world = World()
    world.metrics.is_leading = False
    assert world.samples() == {}


def test_series_do_not_grow_with_services_and_revisions_that_are_gone():
    world = World()
    world.decide(3)
    num_samples = len(world.samples())
    for number in range(1000):
        key = ("default", f"chat-{number}")
        body = rolled_out_service(name=key[1], uid=f"u{number}")
        world.services[key] = body
        world.metrics.observe_change(key, rolled_out_service(phase="Starting"), body)
        world.metrics.observe_decision(
            replace(SERVICE, name=key[1], uid=f"u{number}"), Observation(0.0, (), 1),
            Decision(2, "why", "ScaleUp"),
        )  # fmt: skip
        del world.services[key]
        world.services[KEY] = rolled_out_service(revision=f"{number:08x}")
        world.pods = [child("new", f"{number:08x}")]
    world.metrics.observe_requests()
    text = world.process.render()[0].decode()
    assert "chat-" not in text
    assert len(world.samples()) <= num_samples
    assert len(world.metrics._histories) == 1


def test_a_service_created_again_starts_with_no_counts():
    world = World()
    world.decide(3)
    world.services[KEY] = rolled_out_service(uid="another")
    assert value(world, specs.DECISIONS, "ScaleUp") is None


def test_a_service_with_a_refused_spec_has_the_series_of_what_runs():
    world = World()
    world.services[KEY]["spec"]["engine"] = {"extraArgs": ["--port=1"]}
    with pytest.raises(InvalidService):
        to_core(world.services[KEY])
    assert value(world, specs.READY_REPLICAS, OLD, "") == 1


def test_an_invalid_service_has_the_series_of_its_status():
    world = World()
    world.services[KEY]["spec"] = {"model": {}}
    assert value(world, specs.CONDITION_STATUS, "Ready", "True") == 1
    assert value(world, specs.REPLICAS, OLD, "") is None


def test_services_may_change_while_series_are_made():
    """Metrics are rendered in a thread."""
    world = World()

    class Changing(dict):
        def __getitem__(self, name):
            if name == "metadata":
                world.services[("default", "new")] = rolled_out_service("new", "u2")
                world.metrics.observe_decision(
                    SERVICE, Observation(0.0, (), 2), Decision(2, "why", "Hold", (), True)
                )
            return super().__getitem__(name)

    world.services = {KEY: Changing(rolled_out_service()), ("default", "b"): rolled_out_service()}
    assert value(world, specs.SPEC_GENERATION) == 7


def ended_fetch(code, report, at="2026-01-01T00:00:10Z"):
    ended = {"exitCode": code, "message": json.dumps(report), "finishedAt": at}
    return {"name": "fetch-model", "state": {"terminated": ended}}


DONE = {"ok": True, "downloaded_bytes": 30, "seconds": 2.5, "num_cache_hits": 1}
BUSY = {"ok": False, "reason": "ServerError", "message": "503"}
FORGED = {"ok": False, "reason": "a b", "message": ""}


def test_each_fetch_of_a_model_is_counted_once():
    world = World()
    assert value(world, MODEL_FETCHES.downloaded_bytes) is None
    world.pods[0]["status"]["initContainerStatuses"] = [ended_fetch(75, BUSY)]
    world.pods[1]["status"]["initContainerStatuses"] = [ended_fetch(0, DONE)]
    for _ in range(2):
        world.metrics.observe_fetches()
    assert value(world, MODEL_FETCHES.fetches, "ServerError") == 1
    assert value(world, MODEL_FETCHES.fetches, "Fetched") == 1
    assert value(world, MODEL_FETCHES.downloaded_bytes) == 30
    assert value(world, MODEL_FETCHES.seconds) == 2.5
    assert value(world, MODEL_FETCHES.cached_files) == 1
    # The pod's next run, of a container that somebody else may have written.
    world.pods[0]["status"]["initContainerStatuses"] = [ended_fetch(1, FORGED, AT)]
    world.metrics.observe_fetches()
    assert value(world, MODEL_FETCHES.fetches, "Other") == 1
    assert value(world, MODEL_FETCHES.fetches, "ServerError") == 1
    del world.services[KEY]
    world.metrics.observe_fetches()
    assert value(world, MODEL_FETCHES.downloaded_bytes) is None


@pytest.mark.parametrize(
    "forged",
    [
        {"downloaded_bytes": 10**4000}, {"downloaded_bytes": float("inf")}, {"seconds": "x"},
        {"seconds": None}, {"seconds": -5}, {"seconds": float("nan")}, {"num_cache_hits": True},
    ],
)  # fmt: skip
def test_a_forged_report_counts_as_one_without_numbers(forged):
    """Containers write them: they must not break the series of others."""
    world = World()
    world.pods[0]["status"]["initContainerStatuses"] = [ended_fetch(0, DONE | forged)]
    world.pods[1]["status"]["initContainerStatuses"] = [ended_fetch(0, DONE)]
    world.metrics.observe_fetches()
    assert value(world, MODEL_FETCHES.fetches, "Fetched") == 2
    assert value(world, MODEL_FETCHES.downloaded_bytes) == 30


def test_a_success_has_an_exit_code_of_zero():
    world = World()
    world.pods[0]["status"]["initContainerStatuses"] = [ended_fetch(1, DONE)]
    world.metrics.observe_fetches()
    assert value(world, MODEL_FETCHES.fetches, "Fetched") is None
