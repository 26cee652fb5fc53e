"""Scale to zero in the operator's loop: it falls asleep, wakes at once, and goes on after a new leader."""

import asyncio
from dataclasses import replace

import pytest
from tests.controller.scaling.conftest import KEY, SERVICE, SPEC
from tests.support.specs.service_spec import pod_resources

from penstock.clients.pods.scrape import Scraper
from penstock.clients.pods.wake_poll import PATH
from penstock.controller.scaling import wake_watch
from penstock.controller.scaling.gateway_pods import gateway_pods
from penstock.controller.scaling.idle_gate import IdleGate
from penstock.controller.scaling.scale_targets import ScaleTarget
from penstock.controller.scaling.wake_watch import WakeWatch
from penstock.core.observed.gateway_report import VERSION, GatewayReport, demand_of
from penstock.core.scaling.idle import AdapterWork, GatewayDemand
from penstock.core.scaling.signals import Missing, Observation, PodView

IDLE_S = 20.0


@pytest.fixture
async def drowsy(world):
    """A service that may be at zero, whose engine is gone when it is at zero."""
    scaling = replace(SPEC, min_replicas=0, idle_after_s=IDLE_S)

    def targets():
        report = world.report()
        asked = 1 if report is None else report.desired
        view = PodView("p", "Ready", 100.0, 107.0, None, "")
        pods = ((view, world.engine_address),) if asked and world.has_engine else ()
        rollout = replace(SERVICE.rollout, at_zero=world.at_zero)
        resources = pod_resources(accelerator=world.accelerator)
        service = replace(SERVICE, scaling=scaling, rollout=rollout, resources=resources)
        return [ScaleTarget(service, asked, pods, world.reported, is_rolling_out=world.is_rolling)]

    world.is_rolling, world.at_zero = False, "Try"
    world.targets = targets
    world.engine.metrics = idle(world.engine.metrics)
    world.begin_anew()
    world.add_gateway(world.gateway_port, "gateway-a")
    return world


def idle(metrics):
    return lambda path: metrics(path).replace("requests_running 1", "requests_running 0")


async def sleep(world):
    await world.tick(int(IDLE_S / 2) + 1)
    assert world.report().reason_code == "ScaledToZero"


async def test_it_falls_asleep_and_a_request_wakes_it(drowsy):
    await drowsy.tick(int(IDLE_S / 2))
    assert drowsy.report().desired == 1
    await drowsy.tick()
    report = drowsy.report()
    assert (report.desired, report.valid, report.startup_s) == (0, True, 7)
    assert report.reason.startswith("no request came for 20 s; the next request waits about 7 s")
    await drowsy.tick(5)
    assert drowsy.report() is report

    drowsy.gateway.arrivals += 1
    await drowsy.tick()
    report = drowsy.report()
    assert (report.desired, report.reason_code, report.valid) == (1, "ScaleUp", True)
    assert report.reason == "a request came; an engine is expected in 7 s"


async def test_a_gateway_that_does_not_answer_keeps_it_awake(drowsy):
    arrivals, drowsy.gateway.arrivals = drowsy.gateway.arrivals, None
    await drowsy.tick(30)
    assert drowsy.report().desired == 1
    drowsy.gateway.arrivals = arrivals
    await drowsy.tick(2)
    assert drowsy.report().desired == 0


async def test_a_rollout_and_adapters_keep_it_awake_and_wake_it(drowsy):
    drowsy.is_rolling = True
    await drowsy.tick(30)
    assert drowsy.report().desired == 1
    drowsy.is_rolling = False
    await sleep(drowsy)
    drowsy.is_rolling = True
    await drowsy.tick()
    assert drowsy.report().desired == 1


async def test_a_revision_that_is_accepted_at_zero_wakes_nothing_and_keeps_what_runs(drowsy):
    drowsy.at_zero, drowsy.is_rolling = "Accept", True
    await drowsy.tick(30)
    assert drowsy.report().desired == 1
    drowsy.is_rolling = False
    await sleep(drowsy)
    drowsy.is_rolling = True
    await drowsy.tick(3)
    assert drowsy.report().desired == 0
    drowsy.gateway.arrivals += 1
    await drowsy.tick()
    assert drowsy.report().desired == 1


async def test_a_new_leader_goes_on_at_zero_with_the_start_up_time_of_the_status(drowsy):
    await sleep(drowsy)
    drowsy.reported = drowsy.report()
    drowsy.begin_anew()
    drowsy.changed.clear()
    await drowsy.tick(3)
    assert drowsy.changed == []
    drowsy.gateway.arrivals += 1
    await drowsy.tick()
    assert drowsy.report().reason == "a request came; an engine is expected in 7 s"


def test_work_on_adapters_is_work(drowsy):
    seen = AdapterWork(is_rolling_out=True), AdapterWork(is_loading=True)
    target = drowsy.targets()[0]
    for work, reason in zip(
        seen, ("a revision is rolled out", "an engine loads an adapter"), strict=True
    ):
        gate = IdleGate(drowsy.scaler._observer, lambda _, work=work: work)
        decision = gate.decide(target, observation(drowsy), None)
        assert decision is not None
        assert decision.reason == reason
        assert gate.startup_s(KEY) == 120


def observation(world):
    return Observation(world.now_s, (), 1)


def test_a_service_with_a_minimum_is_never_at_zero(world):
    gate = IdleGate(world.scaler._observer)
    assert gate.decide(world.targets()[0], observation(world), None) is None
    assert gate.startup_s(KEY) is None


def test_demand_at_a_gateway_that_does_not_know_the_service():
    assert demand_of(GatewayReport(VERSION, 5.0, {}), "default/chat") == GatewayDemand(5.0, 0, 0)


async def test_a_wake_up_does_not_wait_for_engines_of_others(drowsy, monkeypatch):
    """A tick waits for the engine of another service, and has read the gateway before the request came."""
    await sleep(drowsy)
    is_read, goes_on = asyncio.Event(), asyncio.Event()

    async def hang(self, namespace, pod, address):
        is_read.set()
        await goes_on.wait()
        return Missing(pod, "TimeoutError")

    monkeypatch.setattr(Scraper, "read", hang)
    view = PodView("hostile", "Ready", 100.0, 107.0, None, "")
    neighbor = replace(SERVICE, name="neighbor", uid="u2", scaling=SPEC)
    neighbors = [ScaleTarget(neighbor, 1, ((view, "127.0.0.1:1"),), None)]
    own = drowsy.scaler._targets
    monkeypatch.setattr(drowsy.scaler, "_targets", lambda: [*own(), *neighbors])
    reports = drowsy.scraper.stats_report
    reported = asyncio.Event()

    async def stats_report(pod, address):
        answer = await reports(pod, address)
        reported.set()
        return answer

    monkeypatch.setattr(drowsy.scraper, "stats_report", stats_report)
    ticking = asyncio.create_task(drowsy.tick())
    await is_read.wait()
    await reported.wait()
    drowsy.gateway.arrivals += 1
    await drowsy.scaler.wake(*gateway_pods(drowsy.gateways))
    assert not ticking.done()
    assert drowsy.report().desired == 1
    assert drowsy.report().reason == "a request came; an engine is expected in 7 s"
    assert drowsy.changed[-1] == KEY

    goes_on.set()
    await ticking
    assert drowsy.report().desired == 1
    await drowsy.tick()
    assert drowsy.report().desired == 1


async def test_a_call_without_a_request_wakes_nothing(drowsy):
    await sleep(drowsy)
    (pod,) = gateway_pods(drowsy.gateways)
    drowsy.changed.clear()
    await drowsy.scaler.wake(pod)
    drowsy.gateway.arrivals += 1
    await drowsy.scaler.wake(pod)
    await drowsy.scaler.wake(pod)
    assert drowsy.changed == [KEY]


async def test_requests_of_services_with_replicas_cost_no_look_at_all_services(drowsy, monkeypatch):
    """Clients may send them all the time."""
    await sleep(drowsy)
    (pod,) = gateway_pods(drowsy.gateways)
    drowsy.gateway.arrivals += 1
    await drowsy.scaler.wake(pod)
    monkeypatch.setattr(drowsy.scaler, "_targets", None)
    drowsy.gateway.arrivals += 1
    await drowsy.scaler.wake(pod)


async def test_a_service_that_no_tick_has_seen_is_left_to_the_next_one(drowsy):
    drowsy.gateway.arrivals += 1
    await drowsy.scaler.wake(*gateway_pods(drowsy.gateways))
    assert drowsy.report() is None


async def test_a_wake_up_gets_what_a_quota_leaves(drowsy):
    """Its neighbor has the only accelerator, and may keep it."""
    drowsy.accelerator = ("nvidia.com/gpu", 1)
    await sleep(drowsy)
    resources = pod_resources(accelerator=drowsy.accelerator)
    neighbor = replace(
        SERVICE, name="neighbor", uid="u2", resources=resources,
        scaling=replace(SPEC, min_replicas=1),
    )  # fmt: skip
    view = PodView("p", "Ready", 100.0, 107.0, None, "")
    target = ScaleTarget(neighbor, 1, ((view, drowsy.engine_address),), None)
    own = drowsy.targets
    drowsy.scaler._targets = lambda: [*own(), target]
    await drowsy.tick()
    drowsy.quotas.append(quota("1"))
    drowsy.gateway.arrivals += 1
    await drowsy.scaler.wake(*gateway_pods(drowsy.gateways))
    assert (drowsy.report().desired, drowsy.report().reason_code) == (0, "OverBudget")
    drowsy.quotas[:] = [quota("2")]
    drowsy.gateway.arrivals += 1
    await drowsy.scaler.wake(*gateway_pods(drowsy.gateways))
    assert drowsy.report().desired == 1


def quota(hard):
    name = "requests.nvidia.com/gpu"
    return {
        "metadata": {"namespace": "default", "name": "gpus"},
        "spec": {},
        "status": {"hard": {name: hard}, "used": {name: "1"}},
    }


async def test_the_loop_ticks_early_when_the_gateway_that_calls_does_not_answer(world, monkeypatch):
    ticks = asyncio.Queue()

    async def tick():
        ticks.put_nowait("ticked")

    monkeypatch.setattr("penstock.controller.scaling.scaler.TICK_S", 3600.0)
    monkeypatch.setattr("penstock.controller.scaling.scaler.MIN_TICK_S", 0.0)
    monkeypatch.setattr(world.scaler, "tick", tick)
    world.gateway.arrivals = None
    world.add_gateway(world.gateway_port, "gateway-a")
    running = asyncio.create_task(world.scaler.run())
    async with asyncio.timeout(10):
        await ticks.get()
        await world.scaler.wake(*gateway_pods(world.gateways))
        await ticks.get()
    running.cancel()


async def test_gateways_are_polled_while_they_are_ready(world, monkeypatch):
    """Each new token is a call, but for the first one of a gateway."""
    for name in ("REFRESH_S", "MIN_INTERVAL_S", "RETRY_S"):
        monkeypatch.setattr(wake_watch, name, 0.01)
    tokens, asked, calls = iter(["a-0", "a-1", "a-1", "b-0"]), asyncio.Queue(), []

    def answer(path):
        asked.put_nowait(path)
        return next(tokens, "b-0")

    world.gateway.feed = answer
    world.add_gateway(world.gateway_port, "gateway-a")

    async def called(pod):
        calls.append(pod.name)

    watch = WakeWatch(lambda: world.gateways, called, world.scaler._failures)
    running = asyncio.create_task(watch.run())
    async with asyncio.timeout(10):
        paths = [await asked.get() for _ in range(6)]
    assert paths[:4] == [f"{PATH}?token={token}" for token in ("", "a-0", "a-1", "a-1")]
    assert calls == ["gateway-a", "gateway-a"]
    world.gateways[0]["status"]["conditions"][0]["status"] = "False"
    await asyncio.sleep(0.1)
    while not asked.empty():
        asked.get_nowait()
    await asyncio.sleep(0.1)
    assert asked.empty()
    running.cancel()
