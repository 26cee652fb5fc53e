"""Commands of a person to a rollout."""

from dataclasses import replace

import pytest

from penstock.core.canary.verdict import Accept
from penstock.core.rollout import commands

ACCEPT = Accept("it is as good")


def test_commands_are_read_once(start_service):
    world = start_service("Canary")
    world.change()
    world.until("Judging")
    world.verdict = ACCEPT
    world.order("pause")
    for _ in range(20):
        world.settle_pods()
        world.reconcile()
        world.now_s += 60
    assert world.rollout.phase == "Paused"
    world.order("resume")
    world.reconcile()
    assert world.rollout.phase == "Judging"
    world.order("abort")
    assert world.run() == ["RollingBack", "Discarding", "Rejected"]
    assert world.rollout.rejected.reason == "abort by hand"
    world.order("resume")
    assert world.run()[0] == "Starting"
    assert world.rollout.phase == "Stable"


@pytest.mark.parametrize(
    ("strategy", "phase", "actions"),
    [
        ("Canary", "Stable", ()),
        ("Canary", "Judging", ("promote", "abort", "pause")),
        ("Canary", "Paused", ("promote", "abort", "resume")),
        ("Canary", "Mirroring", ("promote", "abort")),
        ("BlueGreen", "Waiting", ("promote", "abort")),
        ("BlueGreen", "Promoting", ("abort",)),
        ("Rolling", "Replacing", ("abort",)),
        ("Recreate", "Starting", ()),
        ("Rolling", "Rejected", ("resume",)),
    ],
)
def test_what_can_be_said_in_a_phase(strategy, phase, actions):
    assert commands.applicable_actions(strategy, phase) == actions


@pytest.mark.parametrize(
    "text", [None, "", "abort", "abort@x y", "abort@12345678", "delete@12345678 1"]
)
def test_what_is_no_command_is_none(text):
    assert commands.parse_command(text) is None


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen", "Rolling", "Recreate"])
def test_resume_tries_nothing_where_the_spec_asks_for_what_serves(start_service, strategy):
    """Otherwise Recreate would stop the serving pods, and a canary would be compared with itself."""
    world = start_service("BlueGreen")
    new, old = world.change()
    world.bad = {new}
    assert world.run()[-1] == "Rejected"
    rollout = replace(world.spec.rollout, strategy=strategy)
    world.spec = replace(
        world.spec, settings={**world.spec.settings, "engine.seed": 0}, rollout=rollout
    )
    pods = {pod.name for pod in world.serving()}
    world.order("resume")
    assert world.run() == ["Stable"]
    assert world.rollout.rejected is None
    assert ({pod.name for pod in world.serving()}, world.weights()) == (pods, {(old, ""): 100})


@pytest.mark.parametrize("action", ["promote", "abort", "pause", "resume"])
def test_a_command_is_read_as_it_was_written(action):
    text = commands.format_command(action, "0123abcd", "mark-1")
    assert text == f"{action}@0123abcd mark-1"
    assert commands.parse_command(text) == commands.Command(action, "0123abcd", text)
