"""Collector of the series about adapters, built at each scrape from the last placements."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.registry import Collector

from penstock.clients.informer import Key
from penstock.clients.metric_set import families
from penstock.controller.adapter_service import AdapterService
from penstock.observability.metrics import operator as specs
from penstock.observability.service_samples import Sample


class AdapterMetrics(Collector):
    """The series of all services with engines that take adapters. services: as last placed."""

    def __init__(self, services: Callable[[], Mapping[Key, AdapterService]]) -> None:
        self._services = services

    def collect(self) -> Iterable[Metric]:
        """Return all series; none while another replica leads, which places no adapters."""
        return families(
            specs.OF_ADAPTERS,
            [
                ("/".join(key), sample)
                for key, service in self._services().items()
                for sample in _samples(service)
            ],
        )


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
    yield Sample(specs.FAILING, len({name.rpartition("@")[0] for name in service.errors}))
    yield Sample(specs.LOADS, service.num_loads, ("ok",))
    yield Sample(specs.LOADS, service.num_failed_loads, ("failed",))
    yield Sample(specs.UNLOADS, service.num_unloads)
