"""Work of choices among many copies."""

import time
from dataclasses import dataclass

import pytest
from tests.gateway.adapters.adapter_engine import adapter
from tests.support.gateway_snapshots import build

from penstock.core.adapters.route import DRAIN_AFTER_S
from penstock.core.observed.lora_engine import LoraEngine
from penstock.core.routing.pick import Endpoint, Side
from penstock.gateway.adapters.copies import AdapterCopies
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.gateway.snapshots.store import SnapshotStore
from penstock.gateway.stats.adapter_stats import AdapterStatsRegistry

NUM_PODS, NUM_COPIES = 3, 100


@dataclass
class CountedCopy:
    """A copy in memory that counts how often it is looked at."""

    requests: int
    num_looks: int = 0

    @property
    def state(self):
        self.num_looks += 1
        return "Resident"


def listed(requests):
    return {f"other-{number}": CountedCopy(requests) for number in range(NUM_COPIES)}


@pytest.mark.parametrize("waited_s", [0.0, DRAIN_AFTER_S])
@pytest.mark.parametrize("requests", [0, 1])
async def test_a_choice_passes_only_over_copies_of_engines_that_changed(waited_s, requests):
    endpoints = tuple(
        Endpoint(f"default/p{number}", f"10.0.0.{number}:1", "r1") for number in range(NUM_PODS)
    )
    engines = {each.pod: LoraEngine("Penstock", NUM_COPIES) for each in endpoints}
    weights = {Side("r1"): 100}
    service = Service("default", "chat", "chat", 0, weights, endpoints, lora_engines=engines)
    snapshots = SnapshotStore()
    (sql,) = build([], [], [], [adapter("sql")]).adapters
    snapshots.current = Snapshot((service,), (), (sql,))
    copies = AdapterCopies(snapshots, AdapterStatsRegistry(), lambda *_: None, time.monotonic)
    lists = {each.pod: listed(requests) for each in endpoints}
    for pod, each in lists.items():
        copies.residency.note_list(pod, each, time.monotonic())

    def num_looks():
        """Number of reads of copies during a choice, by pod."""
        of_all = [copy for each in lists.values() for copy in each.values()]
        for copy in of_all:
            copy.num_looks = 0
        copies.choose(sql, service, endpoints[:2], {}, waited_s)
        return [sum(copy.num_looks for copy in each.values()) for each in lists.values()]

    assert min(num_looks()) >= NUM_COPIES
    assert num_looks() == [0, 0, 0]
    copies.residency.note_list(endpoints[2].pod, lists[endpoints[2].pod], time.monotonic())
    assert num_looks() == [0, 0, 0]
    lists[endpoints[2].pod] = listed(requests + 1)
    copies.residency.note_list(endpoints[2].pod, lists[endpoints[2].pod], time.monotonic())
    assert num_looks() == [0, 0, 2 * NUM_COPIES]
