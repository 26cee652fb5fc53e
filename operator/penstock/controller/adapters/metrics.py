"""Collector of the series about adapters, built at each scrape from the last pass of the placement loop."""

from collections.abc import Iterable, Iterator
from itertools import islice

from prometheus_client import Metric
from prometheus_client.registry import Collector

from penstock.clients.metrics.metric_set import families
from penstock.controller.adapters.placer import AdapterPlacer
from penstock.controller.adapters.rollouts import RunningRollout
from penstock.controller.adapters.service import AdapterService
from penstock.core.rollout.deadlines import adapter_deadline_s
from penstock.observability.metrics import operator_adapters as specs
from penstock.observability.metrics.fetches import ADAPTER_FETCHES
from penstock.observability.service_samples import Sample, fetch_samples

# Most rollouts that have series at the same time: each has several for each test of its canary.
MAX_ROLLOUTS = 200


class AdapterMetrics(Collector):
    """The series of all services with engines that take adapters, and of the rollouts of their versions."""

    def __init__(self, placer: AdapterPlacer) -> None:
        self._placer = placer

    def collect(self) -> Iterable[Metric]:
        """Return all series; none while another replica leads, which places no adapters.

        Called in a thread: what the event loop may change meanwhile is copied.
        """
        found = [
            ("/".join(key), sample)
            for key, service in dict(self._placer.services).items()
            for sample in _samples(service)
        ]
        found += [
            ("/".join(key), sample)
            for key, totals in self._placer.fetches.totals.items()
            for sample in fetch_samples(totals, ADAPTER_FETCHES)
        ]
        found += [
            ("/".join(rollout.service), sample)
            for rollout in islice(self._placer.rollouts.running(), MAX_ROLLOUTS)
            for sample in _rollout_samples(rollout)
        ]
        return families(specs.OF_ADAPTERS, found)


def _samples(service: AdapterService) -> Iterator[Sample]:
    wanted = service.plan.adapters
    loaded = sum(
        copy.state == "Resident" and name in wanted
        for replica in service.replicas
        for name, copy in replica.copies.items()
    )
    yield Sample(specs.ADAPTERS, len({name.rpartition("@")[0] for name in wanted}))
    yield Sample(specs.COPIES_WANTED, sum(each.copies for each in wanted.values()))
    yield Sample(specs.COPIES_LOADED, loaded)
    yield Sample(specs.SLOTS, sum(replica.slots for replica in service.replicas))
    yield Sample(specs.FAILING, len({name.rpartition("@")[0] for name in [*service.errors]}))
    yield Sample(specs.LOADS, service.num_loads, ("ok",))
    yield Sample(specs.LOADS, service.num_failed_loads, ("failed",))
    yield Sample(specs.UNLOADS, service.num_unloads)


def _rollout_samples(rollout: RunningRollout) -> Iterator[Sample]:
    name, state = rollout.adapter, rollout.stepped.rollout.state
    yield Sample(specs.ADAPTER_ROLLOUT_PHASE, 1, (name, state.phase))
    deadline_s = adapter_deadline_s(state, rollout.canary)
    if deadline_s is not None:
        yield Sample(specs.ADAPTER_ROLLOUT_DEADLINE, deadline_s, (name,))
    yield Sample(specs.ADAPTER_CANARY_WEIGHT, state.weight_percent / 100, (name,))
    judgement = rollout.stepped.judgement
    for test in judgement.evidence if judgement else ():
        labels = name, test["metric"]
        yield Sample(specs.ADAPTER_CANARY_E_VALUE, test["eValue"], labels)
        yield Sample(specs.ADAPTER_CANARY_EFFECT, test["effect"], labels)
        for arm in ("canary", "control"):
            yield Sample(specs.ADAPTER_CANARY_SAMPLES, test[f"{arm}Samples"], (*labels, arm))
