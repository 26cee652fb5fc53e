"""The requests of a load, as its runs draw them."""

from random import Random

from benchmarks.simulator.panel.load import Load

from penstock.sim.request import Request
from penstock.sim.traces.source import Trace
from penstock.sim.workload.generate import Closed, RequestSource, open_requests

SAMPLE = 4000


def arrivals_of(load: Load) -> list[Request]:
    """Arrivals of an open-loop load, with the random stream of `sim.service.Service`."""
    service = load.service
    assert not isinstance(service.workload, Closed | Trace)
    random = Random(f"{load.seed}/{service.name}/load")
    return list(open_requests(service.workload, load.scenario.duration_s, random))


def sample_of(load: Load, from_s: float, to_s: float) -> list[Request]:
    """SAMPLE requests of a closed loop with the lengths of this time; its own depend on the answers."""
    workload = load.service.workload
    assert isinstance(workload, Closed)
    source = RequestSource(workload.mixes, Random(f"{load.seed}/sample"))
    return [source.draw(from_s + (to_s - from_s) * i / SAMPLE) for i in range(SAMPLE)]
