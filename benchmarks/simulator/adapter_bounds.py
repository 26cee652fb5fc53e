"""Bounds on rules that do not know future requests."""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from penstock.sim.adapters.baselines import AllPods
from penstock.sim.adapters.bound import without_loads
from penstock.sim.adapters.pool import Pool
from penstock.sim.adapters.scenario import WARM_UP_S, Adapters, AdapterScenario
from penstock.sim.adapters.workload import Popularity, load_times, requests_of, versions
from penstock.sim.request import Request

# Number of requests that are run alone, and the time between two of
# them, in seconds.
NUM_ALONE, ALONE_S = 1000, 200.0
# Number of times at which the requests in flight are counted.
NUM_HELD = 40
# Lagrange multipliers of the bound on misses.
MISS_PRICES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
# Accuracy of the bound on times, in seconds.
PRECISION_S = 0.002


@dataclass(frozen=True, slots=True)
class IndependentRequests:
    """Requests that draw their adapters independently of one another (independent reference model).

    load_s, shares: load time and share of the requests, by adapter. alone_s: times to the first token of
    requests alone on an engine that has their adapter. held: adapters with requests in flight, at some times.
    """

    load_s: Sequence[float]
    shares: Sequence[float]
    alone_s: Sequence[float]
    held: Sequence[Collection[int]]

    @classmethod
    def of(cls, scenario: AdapterScenario, seed: int) -> "IndependentRequests":
        """Estimate what bounds of independent requests need, from a scenario.

        Raises ValueError if its requests are no independent draws.
        """
        adapters, duration_s = scenario.adapters, scenario.duration_s
        drawn = requests_of(adapters, duration_s, seed)
        pool = Pool(AllPods(), without_loads(adapters.model_copy(update={"pods": 1})), seed)
        apart = [_at(i * ALONE_S, request) for i, request in enumerate(drawn[:NUM_ALONE])]
        pool.run(apart, ALONE_S * len(apart))
        took_s = [each.end_s - each.arrival_s for each in apart if each.end_s is not None]
        random = Random(seed)
        ends_s = [request.arrival_s + random.choice(took_s) for request in drawn]
        index = {version.engine_name: i for i, version in enumerate(versions(adapters))}
        held = []
        for number in range(NUM_HELD):
            at_s = WARM_UP_S + (duration_s - WARM_UP_S) * number / NUM_HELD
            in_flight = zip(drawn, ends_s, strict=True)
            held.append({index[r.adapter] for r, end_s in in_flight if r.arrival_s <= at_s < end_s})
        alone_s = [each.ttft_s for each in apart if each.ttft_s is not None]
        load_s = list(load_times(adapters, seed).values())
        return cls(load_s, shares(scenario, seed), alone_s, held)

    def fewest_misses(self, slots: int) -> float:
        """Lowest share of requests that find their adapter neither in memory nor being loaded."""
        return self._least_missed(self.shares, slots)

    def lowest_ttft_s(self, slots: int, most_misses: float = 1.0, quantile: float = 0.99) -> float:
        """Lowest quantile of the time to the first token, for rules that do not know the coming requests.

        most_misses: largest allowed share of misses, as in `fewest_misses`. Rules that let requests wait
        before their load starts are left out.

        What is in memory or being loaded when a request arrives says nothing about its adapter. It is at most
        `slots` adapters, with those held by requests in flight. A request for any other one waits for its
        whole load. With F(t) = P(alone > t), and a over the adapters that are not kept,

            P(TTFT > t) >= F(t) + sum of shares[a] * (F(t - load_s[a]) - F(t))

        which is least if the adapters with the greatest terms are kept. The bound on misses enters with a
        Lagrange multiplier: a lower bound for each.
        """
        alone_s = sorted(self.alone_s)

        def is_out_of_reach(ttft_s: float) -> bool:
            late = _share_above(alone_s, ttft_s)
            later = [_share_above(alone_s, ttft_s - each) - late for each in self.load_s]
            for price in MISS_PRICES:
                costs = [s * (x + price) for s, x in zip(self.shares, later, strict=True)]
                missed = self._least_missed(costs, slots) - price * most_misses
                if late + missed > 1 - quantile:
                    return True
            return False

        low, high = 0.0, max(self.load_s) + alone_s[-1]
        while high - low > PRECISION_S:
            middle = (low + high) / 2
            low, high = (middle, high) if is_out_of_reach(middle) else (low, middle)
        return low

    def _least_missed(self, costs: Sequence[float], slots: int) -> float:
        """Sum of the costs of adapters that are not kept, the mean over `held`."""
        ordered = sorted(range(len(costs)), key=costs.__getitem__, reverse=True)
        return fmean(
            sum(costs[a] for a in [a for a in ordered if a not in held][slots - len(held) :])
            for held in self.held
        )


def is_independent(adapters: Adapters) -> bool:
    """Whether each request draws its adapter independently of the others and of the time."""
    return not (adapters.burst_share or adapters.shift_s or adapters.new_share)


def shares(scenario: AdapterScenario, seed: int) -> list[float]:
    """Share of the requests by adapter. Raises ValueError if requests are no independent draws."""
    if not is_independent(scenario.adapters):
        raise ValueError("adapters depend on earlier requests or on the time")
    popularity = Popularity(scenario.adapters, scenario.duration_s, Random(f"calls {seed}"))
    by_adapter = dict(zip(popularity.by_rank, popularity.weights, strict=True))
    total = sum(popularity.weights)
    return [by_adapter[adapter] / total for adapter in range(scenario.adapters.total)]


def _at(at_s: float, request: Request) -> Request:
    """The same request at another time."""
    return Request(
        request.request_id, at_s, request.prompt_tokens, request.output_tokens,
        adapter=request.adapter,
    )  # fmt: skip


def _share_above(ordered: Sequence[float], limit: float) -> float:
    """Share of ascending values above a limit."""
    return 1 - bisect_right(ordered, limit) / len(ordered)
