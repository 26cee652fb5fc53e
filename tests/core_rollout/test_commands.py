"""What a person says to a rollout."""

import pytest

from penstock.core.canary.verdict import Accept
from penstock.core.rollout import commands

ACCEPT = Accept("it is as good")


def test_commands_are_read_once(begun):
    world = begun("Canary")
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
        ("Canary", "Shadowing", ("promote", "abort")),
        ("BlueGreen", "Waiting", ("promote", "abort")),
        ("BlueGreen", "Promoting", ("abort",)),
        ("Rolling", "Replacing", ("abort",)),
        ("Recreate", "Starting", ()),
        ("Rolling", "Rejected", ("resume",)),
    ],
)
def test_what_can_be_said_in_a_phase(strategy, phase, actions):
    assert commands.possible(strategy, phase) == actions


@pytest.mark.parametrize(
    "text", [None, "", "abort", "abort@x y", "abort@12345678", "delete@12345678 1"]
)
def test_what_is_no_command_is_none(text):
    assert commands.read(text) is None
