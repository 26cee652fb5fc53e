"""A canary that has to pass an evaluation as well."""

from dataclasses import replace

import pytest
from tests.core.rollout.scenarios.world import World

from penstock.core.canary.verdict import Accept, Continue
from penstock.core.manifests.evaluation import evaluation_job
from penstock.core.observed.pods import ObservedPod
from penstock.core.rollout import commands
from penstock.core.spec.revision import revision_of
from penstock.core.spec.rollout import EvaluationSpec, RolloutSpec

ACCEPT = Accept("it is as good")


@pytest.fixture
def judged_world():
    """A canary before its judge, with an evaluation that runs."""
    world = World(desired=2)
    rollout = RolloutSpec(strategy="Canary", evaluation=EvaluationSpec(image="e"))
    world.spec = replace(world.spec, rollout=rollout)
    world.run()
    assert not world.jobs
    world.spec = replace(world.spec, settings={**world.spec.settings, "engine.seed": 1})
    world.verdict = Continue("on", 0.1)
    for _ in range(30):
        world.settle_pods()
        world.reconcile()
        world.now_s += 2
    assert world.rollout.phase == "Judging"
    ((_, job),) = world.jobs.items()
    assert (job.revision, job.state) == (revision_of(world.spec), "Running")
    return world


def end(world, state, said=""):
    ((name, job),) = world.jobs.items()
    world.jobs[name] = replace(job, state=state, reason="deadline exceeded")
    if said:
        world.pods["e"] = ObservedPod(
            "e", "e", job.revision, "evaluation", "", False, False, "Failed", None, said,
            owner=job.uid,
        )  # fmt: skip


def run_rounds(world, rounds=5):
    for _ in range(rounds):
        world.settle_pods()
        world.reconcile()
        world.now_s += 2
    return world.rollout.phase


def test_no_verdict_promotes_before_it_has_passed(judged_world):
    judged_world.verdict = ACCEPT
    assert run_rounds(judged_world) == "Judging"
    end(judged_world, "Passed")
    assert judged_world.run()[-1] == "Stable"
    assert judged_world.rollout.stable == revision_of(judged_world.spec)
    assert not judged_world.jobs


def test_one_that_has_passed_promotes_nothing_by_itself(judged_world):
    end(judged_world, "Passed")
    assert run_rounds(judged_world) == "Judging"


@pytest.mark.parametrize(
    ("said", "told"), [("12 of 40 answers wrong", "12 of 40"), ("", "deadline exceeded")]
)
def test_one_that_fails_rolls_back_with_its_report(judged_world, said, told):
    judged_world.verdict = ACCEPT
    end(judged_world, "Failed", said)
    assert judged_world.run()[-1] == "Rejected"
    assert judged_world.rollout.rejected.reason.startswith("the evaluation failed")
    assert told in judged_world.rollout.rejected.reason
    assert not judged_world.jobs


def test_a_person_need_not_wait_for_it(judged_world):
    revision = revision_of(judged_world.spec)
    judged_world.command = commands.parse_command(
        commands.format_command("promote", revision, "n1")
    )
    assert judged_world.run()[-1] == "Stable"
    assert not judged_world.jobs


def resume(world):
    revision = world.rollout.rejected.revision
    world.command = commands.parse_command(commands.format_command("resume", revision, "n1"))
    world.verdict = Continue("on", 0.1)
    assert run_rounds(world, 30) == "Judging"


def test_a_second_try_is_not_judged_by_the_report_of_the_first(judged_world):
    end(judged_world, "Failed", "12 of 40 answers wrong")
    assert judged_world.run()[-1] == "Rejected"
    resume(judged_world)
    ((_, job),) = judged_world.jobs.items()
    assert job.state == "Running"
    end(judged_world, "Failed")  # the first one's pod has not gone yet
    assert judged_world.run()[-1] == "Rejected"
    assert judged_world.rollout.rejected.reason == "the evaluation failed: deadline exceeded"


def test_a_second_try_waits_for_the_first_ones_job_to_go(judged_world):
    ((name, first),) = judged_world.jobs.items()
    end(judged_world, "Failed", "12 of 40 answers wrong")
    assert judged_world.run()[-1] == "Rejected"
    judged_world.jobs[name] = replace(first, state="Failed", is_ending=True)
    resume(judged_world)
    assert judged_world.jobs[name].uid == first.uid
    del judged_world.jobs[name]
    assert run_rounds(judged_world) == "Judging"
    assert judged_world.jobs[name].uid != first.uid


def test_it_is_made_for_a_pod_that_is_ready():
    world = World(desired=2)
    rollout = RolloutSpec(strategy="Canary", evaluation=EvaluationSpec(image="e"))
    world.spec = replace(world.spec, rollout=rollout)
    world.run()
    new, _ = world.change()
    world.verdict = Continue("on", 0.1)
    world.until("Judging")
    canary = {pod.name: pod for pod in world.serving() if pod.revision == new}
    world.pods |= {name: replace(pod, is_ready=False) for name, pod in canary.items()}
    world.reconcile()
    assert all(pod.address for pod in canary.values())
    assert not world.jobs
    world.pods |= canary
    world.reconcile()
    assert [job.revision for job in world.jobs.values()] == [new]


@pytest.mark.parametrize(
    ("address", "url"), [("10.0.0.7", "http://10.0.0.7:8000"), ("fd00::7", "http://[fd00::7]:8000")]
)
def test_it_is_told_the_url_of_the_canary(judged_world, address, url):
    """The Job's URL of the canary has brackets around an IPv6 address."""
    wanted = EvaluationSpec(image="e")
    job = evaluation_job(judged_world.spec, wanted, "r2", "r1", address)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert env["PENSTOCK_CANARY_URL"] == url
