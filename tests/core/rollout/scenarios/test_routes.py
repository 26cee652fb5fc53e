"""Pods that have no traffic any more go when every gateway knows it."""

import pytest

from penstock.core.canary.verdict import Abort, Accept
from penstock.core.rollout.routes import GATEWAY_TIMEOUT_S, RECHECK_S

ACCEPT = Accept("it is as good")
ABORT = Abort("TTFT of the canary is +30 %")


def test_pods_stay_until_every_gateway_obeys_the_routes(start_service):
    """A canary that is promoted, and one that is rolled back, with a gateway that is late."""
    for verdict, waiting, after in (
        (ABORT, "RollingBack", "Discarding"),
        (ACCEPT, "Promoting", "Draining"),
    ):
        world = start_service("Canary")
        world.change()
        world.until("Judging")
        world.verdict = verdict
        world.deaf = {"b"}
        world.until(waiting)
        describe_lagging_gateway = f"gateway b applies traffic generation {world.gateways['b']}"
        for _ in range(5):
            world.follow()
            made = world.reconcile()
            world.now_s += 2
            assert made.rollout.phase == waiting
            assert (describe_lagging_gateway in made.waiting_for, made.wake_s) == (
                True,
                RECHECK_S,
            )
        world.deaf = set()
        world.follow()
        made = world.reconcile()
        assert made.rollout.phase == after
        assert made.rollout.reason.startswith("2 of 2 gateways apply traffic generation")


@pytest.mark.parametrize("kind", ["deaf", "silent"])
def test_a_gateway_that_hangs_holds_a_rollback_for_so_long_and_no_longer(start_service, kind):
    world = start_service("Canary")
    world.change()
    world.until("Judging")
    setattr(world, kind, {"b"})
    world.verdict = ABORT
    world.until("RollingBack")
    began_s = world.now_s
    world.until("Discarding")
    assert GATEWAY_TIMEOUT_S <= world.now_s - began_s + 2 <= GATEWAY_TIMEOUT_S + 4
    assert "gateway b" in world.rollout.reason
    assert f"after {GATEWAY_TIMEOUT_S:.0f} s" in world.rollout.reason


def test_without_a_gateway_nobody_is_waited_for(start_service):
    world = start_service("BlueGreen", scale_down_delay_s=0)
    world.gateways = {}
    world.change()
    assert world.run() == ["Starting", "Promoting", "Draining", "Stable"]
