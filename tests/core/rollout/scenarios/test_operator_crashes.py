"""A rollout ends the same if the operator dies at any write."""

from typing import get_args

import pytest

from penstock.core.canary.verdict import Accept, MirrorPassed
from penstock.core.spec.canary import CanarySpec, MirrorSpec
from penstock.core.spec.rollout import Strategy

STRATEGIES = get_args(Strategy)
ACCEPT, SHOWN = Accept("it is as good"), MirrorPassed("200 copies showed no fault")
WITH_COPIES = CanarySpec(mirror=MirrorSpec())


# The phase in which a person takes the new revision back, and how.
TAKEN_BACK = {
    "Canary": ("Judging", "abort"),
    "BlueGreen": ("Promoting", "abort"),
    "Rolling": ("Replacing", "abort"),
    "Recreate": ("Starting", "another spec"),
}


def run_rollout(world, strategy, ending):
    """A rollout from its beginning to its end, and what is there then."""
    world.verdict = ACCEPT if ending == "promoted" else None
    world.shown = SHOWN
    world.change()
    if ending == "taken back":
        phase, how = TAKEN_BACK[strategy]
        world.until(phase)
        if how == "abort":
            world.order(how)
        else:
            world.change(seed=0)
    world.run()
    state = world.rollout
    rejected = state.rejected and (state.rejected.revision, state.rejected.reason)
    return state.phase, state.stable, rejected, world.counts(), world.weights(), set(world.history)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["promoted", "taken back"])
@pytest.mark.parametrize(
    ("strategy", "canary"),
    [*((strategy, CanarySpec()) for strategy in STRATEGIES), ("Canary", WITH_COPIES)],
)
def test_an_operator_that_dies_at_any_write_or_at_all_ends_the_same(
    start_service, strategy, canary, ending
):
    world = start_service(strategy, replicas=2, canary=canary)
    before = world.writes
    undisturbed = run_rollout(world, strategy, ending)
    numbers = range(before + 1, world.writes + 1)
    deaths = [{number} for number in numbers]
    # Each write is made at the second attempt, by another operator each time.
    deaths.append(set(range(before + 1, before + 10 * len(numbers), 2)))
    for dies_at in deaths:
        world = start_service(strategy, replicas=2, canary=canary)
        assert world.writes == before
        world.dies_at = dies_at
        assert run_rollout(world, strategy, ending) == undisturbed
        assert world.writes >= min(dies_at)
