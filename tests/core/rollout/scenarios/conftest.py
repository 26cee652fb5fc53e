"""Fixture: a service that serves its first revision."""

from dataclasses import replace

import pytest
from tests.core.rollout.scenarios.world import World

from penstock.core.spec.revision import revision_of
from penstock.core.spec.rollout import RolloutSpec


@pytest.fixture
def start_service():
    """`start_service(strategy, replicas, …)` -> a service that serves its first revision."""

    def make(strategy="Canary", replicas=4, **rollout):
        world = World(desired=replicas)
        world.spec = replace(world.spec, rollout=RolloutSpec(strategy=strategy, **rollout))
        assert world.run() == ["Starting", "Stable"]
        assert world.counts() == {revision_of(world.spec): replicas}
        return world

    return make
