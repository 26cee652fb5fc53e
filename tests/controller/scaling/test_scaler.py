"""Scaler over several ticks: decisions, and when they are reported."""

from penstock.controller.scaling.scaler import BLIND_TICKS_TO_REPORT


async def test_load_becomes_a_scale_and_a_report(world):
    world.engine.usage = 1.0

    await world.tick()

    report = world.report()
    assert (report.desired, report.reason_code, report.valid) == (2, "ScaleUp", True)
    assert report.reason.startswith("KV demand of 2,048 tokens")
    assert [step for step, _, _ in report.trail] == [
        "need",
        "queue",
        "up",
        "bounds",
    ]
    assert world.changed == [world.key]


async def test_a_calm_service_is_not_reported_again(world):
    await world.tick(10)
    assert world.changed == [world.key]


async def test_a_new_leader_keeps_the_report_that_the_status_has(world):
    await world.tick()
    world.reported = world.report()
    world.begin_anew()
    world.changed.clear()

    await world.tick()

    assert world.changed == []


async def test_a_decision_builds_on_the_last_one_not_on_what_is_there(world):
    """In mode DryRun a decision has no effect on the pods, and a rollout has additional pods."""
    world.mode = "DryRun"
    world.engine.usage = 1.0
    await world.tick(5)
    assert world.report().desired == 2

    world.engine.usage = 0.0
    await world.tick(5)

    assert world.report().desired == 1
    assert world.changed == [world.key] * 2


async def test_lost_metrics_hold_and_are_news_only_when_they_last(world):
    world.provisioned = 3
    await world.tick()
    world.changed.clear()
    world.has_engine = False

    await world.tick(BLIND_TICKS_TO_REPORT - 1)
    assert world.changed == []
    await world.tick()

    assert world.changed == [world.key]
    assert world.report().reason_code == "MetricsMissing"


async def test_a_quota_holds_back_what_it_does_not_leave(world):
    """Two of six accelerators, of which another workload has four."""
    world.accelerator = ("nvidia.com/gpu", 2)
    world.engine.usage = 1.0
    world.quotas = [quota(hard=6, used=6)]

    await world.tick()

    report = world.report()
    assert (report.desired, report.reason_code) == (1, "OverBudget")
    assert report.reason == "1 of 2 wanted replicas: there are 2 accelerators"
    assert report.trail[-1] == ("budget", 1, report.reason)

    world.quotas = [quota(hard=8, used=6)]
    await world.tick()
    assert world.report().desired == 2


async def test_a_quota_that_holds_the_current_number_is_reported(world):
    """The end of the limit is reported as well."""
    world.accelerator = ("nvidia.com/gpu", 2)
    world.quotas = [quota(hard=2, used=2)]
    await world.tick()
    assert world.report().reason_code != "OverBudget"

    world.engine.usage = 1.0
    await world.tick(5)
    assert (world.report().desired, world.changed) == (1, [world.key] * 2)
    assert world.report().reason_code == "OverBudget"

    world.engine.usage = 0.0
    await world.tick(5)
    assert (world.report().desired, world.changed) == (1, [world.key] * 3)
    assert world.report().reason_code != "OverBudget"


def quota(hard, used):
    name = "requests.nvidia.com/gpu"
    return {
        "metadata": {"namespace": "default", "name": "gpus"},
        "spec": {"hard": {name: str(hard)}},
        "status": {"hard": {name: str(hard)}, "used": {name: str(used)}},
    }


async def test_a_service_that_is_made_again_begins_without_what_was_said_of_the_first(world):
    world.engine.usage = 1.0
    await world.tick()
    assert world.report().desired == 2
    world.uid = "u2"
    assert world.report() is None
    world.engine.usage = 0.5
    await world.tick()
    assert world.report().desired == 1


async def test_decisions_are_published_for_recordings(world):
    with world.recorder._listen(world.key) as queue:
        await world.tick(2)
    ticks = [queue.get_nowait() for _ in range(queue.qsize())]
    assert [tick.decision.desired for tick in ticks] == [1, 1]
    assert ticks[0].settings.bounds.max_replicas == world.report().desired + 4
