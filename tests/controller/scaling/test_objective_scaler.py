"""Scaling by latency objectives over ticks: learned state, its storage, and variants."""

from dataclasses import replace

import pytest
from tests.support.specs.service_spec import pod_resources

from penstock.controller.scaling.learned_state import MIN_WRITE_INTERVAL_S
from penstock.controller.scaling.scaler import BLIND_TICKS_TO_REPORT, TICK_S
from penstock.core.scaling import quotas
from penstock.core.scaling.shortage import AVOID_S, NODE_WAIT_S, UnscheduledPods, VariantShortages
from penstock.core.spec.service import VariantSpec

FAR_TOO_MANY = 500  # requests a tick, for all replicas that may be
FOR_FOUR = 250  # requests a tick that four replicas serve, and three do not
# Ticks after which replicas for a lasting load are requested.
PATIENT = 20


async def test_objectives_are_sized_for(sized):
    await sized.serve(PATIENT, arrivals=FAR_TOO_MANY)
    decision = sized.report()
    assert (decision.desired, decision.reason_code, decision.valid) == (5, "ScaleUp", True)
    assert [step for step, _, _ in decision.trail][:3] == ["capacity", "forecast", "need"]
    # Measured time of an iteration with 20 prompt tokens; the prior is 0.096 s.
    state = sized.state()
    assert state.fit.model.time_s(20, 4, 0) == pytest.approx(0.02, rel=0.2)
    assert state.startup.expected_s == pytest.approx(7.0)


async def test_a_silent_gateway_holds_the_number(sized):
    await sized.serve(3, arrivals=1)
    held = sized.report().desired
    sized.gateway.arrivals = None
    await sized.tick(BLIND_TICKS_TO_REPORT)
    report = sized.report()
    assert (report.desired, report.valid) == (held, False)
    assert "no usable metrics of the gateway (unreadable stats report)" in report.reason


async def test_of_two_gateways_both_must_answer(sized):
    sized.add_gateway(1, "gateway-b")
    await sized.tick(BLIND_TICKS_TO_REPORT)
    assert "no usable metrics of the gateway (ClientConnectorError)" in sized.report().reason


async def test_what_is_learned_is_kept_once_and_the_next_leader_goes_on_from_it(sized):
    await sized.serve(28, arrivals=1)
    assert sized.kube.writes == 1  # at the first start-up; the rest comes a minute later
    body = sized.kube.config_maps["chat-sizing"]
    assert body["metadata"]["ownerReferences"][0]["uid"] == "u1"

    store = sized.scaler._by_objectives._learned
    stored = store._stored[sized.key]
    store._stored[sized.key] = replace(stored, next_write_s=sized.now_s)
    await sized.serve(1, arrivals=1)
    assert sized.kube.writes == 2
    before = sized.state()
    assert before.forecast.errors.watched_s > 0

    sized.begin_anew()
    await sized.tick()

    after = sized.state()
    assert after.fit.model == before.fit.model
    assert after.startup == before.startup
    assert after.traffic.output == before.traffic.output
    assert after.forecast.errors == before.forecast.errors
    assert sized.kube.writes == 2


async def test_an_idle_service_is_not_written_to(sized):
    await sized.serve(10, arrivals=1)
    ticks = int(MIN_WRITE_INTERVAL_S / TICK_S)
    await sized.tick(ticks)
    writes = sized.kube.writes
    await sized.tick(2 * ticks)
    sized.begin_anew()
    await sized.tick(2 * ticks)
    assert sized.kube.writes == writes


async def test_the_record_of_an_earlier_service_of_the_name_is_not_believed(sized):
    await sized.serve(3, arrivals=1)
    body = sized.kube.config_maps["chat-sizing"]
    body["metadata"]["ownerReferences"][0]["uid"] = "u0"
    sized.begin_anew()
    await sized.tick()
    assert sized.state().traffic.mix is None


async def test_somebody_elses_config_map_is_left_alone(sized):
    theirs = {"metadata": {"name": "chat-sizing"}, "data": {"mine": "1"}}
    sized.kube.config_maps["chat-sizing"] = theirs
    await sized.serve(3, arrivals=1)
    assert sized.kube.config_maps["chat-sizing"] is theirs


async def test_nothing_is_decided_before_the_record_was_read(sized):
    sized.kube.is_down = True
    await sized.serve(2, arrivals=FAR_TOO_MANY)
    assert sized.report() is None


async def test_of_two_variants_the_cheap_one_grows_and_a_new_leader_goes_on_from_both(sized):
    gpu = ("nvidia.com/gpu", 1)
    sized.variants = (
        VariantSpec("cheap", pod_resources("1", "1Gi", gpu), 1.0, 0, 3),
        VariantSpec("dear", pod_resources("1", "1Gi", gpu), 1.5, 0, 5),
    )
    await sized.serve(PATIENT, arrivals=FOR_FOUR)
    report = sized.report()
    # The expensive variant is unknown and assumed equally fast: it is used once the other has no room.
    assert report.by_variant == {"cheap": 3, "dear": 1}
    assert [step for step, _, _ in report.trail][-1] == "variants"
    assert report.trail[-1][2] == "3 cheap + 1 dear for 4.5 an hour"
    assert sized.state().known["cheap"].fit.windows > 0
    assert sized.state().known["dear"].fit.windows == 0

    sized.reported = report
    sized.begin_anew()
    await sized.serve(2, arrivals=FOR_FOUR)
    assert sized.report() == report


async def test_a_variant_whose_quota_is_used_up_is_not_asked_for(sized):
    sized.variants = (
        VariantSpec("cheap", pod_resources("1", "1Gi", ("nvidia.com/gpu", 1)), 1.0, 0, 5),
        VariantSpec("dear", pod_resources("1", "1Gi", ("nvidia.com/mig-1g.10gb", 1)), 1.5, 0, 5),
    )
    quota = {"requests.nvidia.com/gpu": "2"}
    sized.quotas = [
        {
            "metadata": {"namespace": "default", "name": "q"},
            "spec": {"hard": quota},
            "status": {"hard": quota, "used": {}},
        }
    ]
    await sized.serve(PATIENT, arrivals=FAR_TOO_MANY)
    report = sized.report()
    assert report.by_variant == {"cheap": 2, "dear": 3}
    assert report.reason_code != quotas.OVER_BUDGET


async def test_what_no_node_has_room_for_is_another_variants(sized):
    sized.variants = (
        VariantSpec("spot", pod_resources("1", "1Gi"), 1.0, 0, 5),
        VariantSpec("sure", pod_resources("1", "1Gi"), 3.0, 0, 5),
    )
    await sized.serve(PATIENT, arrivals=FAR_TOO_MANY)
    assert sized.report().by_variant == {"spot": 5, "sure": 0}
    for since_s, expected in (
        (sized.now_s - NODE_WAIT_S + 60, {"spot": 5, "sure": 0}),  # a node may be on its way
        (sized.now_s - NODE_WAIT_S, {"spot": 2, "sure": 3}),
        (None, {"spot": 2, "sure": 3}),  # not at once again
    ):
        sized.unschedulable = {"spot": UnscheduledPods(since_s, 2)} if since_s else {}
        await sized.serve(PATIENT, arrivals=FAR_TOO_MANY)
        assert sized.report().by_variant == expected
    assert "spot, at most 2, each 1 an hour" in sized.report().trail[0][2]


def test_a_variant_is_tried_again_after_a_while():
    short = VariantShortages().updated(1000.0, {"spot": UnscheduledPods(1000.0 - NODE_WAIT_S, 2)})
    assert short.limit({"spot": 4, "other": 1}) == {"spot": 2, "other": 1}
    assert short.limit({"spot": 1}) == {"spot": 1}
    assert short.updated(999.0 + AVOID_S, {}).limit({}) == {"spot": 2}
    assert short.updated(1000.0 + AVOID_S, {}).limit({}) == {}
