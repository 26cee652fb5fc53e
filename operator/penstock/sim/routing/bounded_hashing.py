"""Baseline: KubeAI's consistent hashing with bounded loads.

Read in substratusai/kubeai, internal/loadbalancer/balance_chwbl.go at 08e69e54 and the defaults in
api/k8s/v1/model_types.go (PrefixHash).
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from hashlib import blake2b

from penstock.core.admission.engine_load import Waiting
from penstock.sim.request import Request
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.session import session_of
from penstock.sim.routing.view import EngineView

# KubeAI's defaults: points of each engine on the ring, and meanLoadFactor of 125 %.
NUM_POINTS, LOAD_FACTOR = 256, 1.25


class BoundedHashing(Picker):
    """The first engine on the ring behind the hash of the key that is not above the bound.

    An engine is above it if, with this request, it has more than load_factor times the mean requests in
    flight. If all are, the first one gets the request. KubeAI's key is the first 100 characters of the first
    message of the user; here it is the conversation.
    """

    def __init__(
        self, key: Callable[[Request], str] = session_of, load_factor: float = LOAD_FACTOR
    ) -> None:
        self._key = key
        self._load_factor = load_factor
        self._ring: list[tuple[int, str]] = []

    def engine_added(self, engine: EngineView, now: float) -> None:
        for point in range(NUM_POINTS):
            insort(self._ring, (_hash(f"{engine.pod}{point}"), engine.pod))

    def engine_removed(self, pod: str, now: float) -> None:
        self._ring = [entry for entry in self._ring if entry[1] != pod]

    def pick(
        self,
        request: Request,
        waiting: Waiting,
        engines: Sequence[EngineView],
        now: float,
        draw: float,
    ) -> EngineView:
        by_pod = {engine.pod: engine for engine in engines}
        in_order = self._engines_behind(_hash(self._key(request)), by_pod)
        total = sum(engine.requests for engine in engines)
        bound = self._load_factor * (total + 1) / len(engines)
        fitting = (each for each in in_order if not total or each.requests + 1 <= bound)
        return next(fitting, in_order[0])

    def _engines_behind(self, point: int, by_pod: dict[str, EngineView]) -> list[EngineView]:
        """Engines in the order of the ring from a point on."""
        start = bisect_left(self._ring, (point, ""))
        pods = dict.fromkeys(pod for _, pod in self._ring[start:] + self._ring[:start])
        return [by_pod[pod] for pod in pods if pod in by_pod]


def first_block(request: Request) -> str:
    """Key of the beginning of the whole prompt, with a system prompt that all may share."""
    return str(request.prefix[:1])


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
