"""Bounds that no rule can beat.

Loads: Belady's rule on one cache with the slots of all pods. It evicts the adapter whose next request is
furthest away, which is the fewest loads that any rule with this many slots can have, with or without
loads ahead of requests. Requests that keep a slot busy and the split into pods only make it harder.
Times: every adapter in the memory of every pod (`Everywhere`), so that only the engines' own work is left.
Both know all requests beforehand. `IndependentCalls` has higher bounds, for rules that do not know them.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from statistics import fmean

from penstock.sim.adapters.baselines import PodRule, least_open
from penstock.sim.adapters.pod import AdapterPod
from penstock.sim.adapters.workload import Call

# Lagrange multipliers of the bound on misses.
MISS_PRICES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
# Accuracy of the bound on times, in seconds.
PRECISION_S = 0.002


class Everywhere(PodRule):
    """Least open requests, on pods with a slot for every adapter and loads that take no time."""

    def choose(self, name: str) -> AdapterPod:
        return least_open(self.pool.pods)


def fewest_loads(calls: Sequence[Call], slots: int, from_s: float) -> int:
    """Loads after from_s by Belady's rule, from an empty cache at the first call."""
    next_use = _next_uses(calls)
    cached: dict[int, int] = {}  # adapter -> index of its next call
    heap: list[tuple[int, int]] = []  # (-next call, adapter), outdated entries included
    loads = 0
    for index, call in enumerate(calls):
        if call.adapter not in cached:
            loads += call.at_s >= from_s
            while len(cached) >= slots:
                later, adapter = heappop(heap)
                if cached.get(adapter) == -later:
                    del cached[adapter]
        cached[call.adapter] = next_use[index]
        heappush(heap, (-next_use[index], call.adapter))
    return loads


def _next_uses(calls: Sequence[Call]) -> list[int]:
    """Index of the next call of the same adapter, for each call; beyond the end if there is none."""
    following: dict[int, int] = {}
    uses = [0] * len(calls)
    for index in reversed(range(len(calls))):
        uses[index] = following.get(calls[index].adapter, len(calls) + index)
        following[calls[index].adapter] = index
    return uses


@dataclass(frozen=True, slots=True)
class IndependentCalls:
    """Requests that draw their adapters independently of one another (independent reference model).

    load_s, shares: load time and share of the requests, by adapter. alone_s: times to the first token of
    requests alone on an engine that has their adapter. held: adapters with requests in flight, at some times.
    """

    load_s: Sequence[float]
    shares: Sequence[float]
    alone_s: Sequence[float]
    held: Sequence[Collection[int]]

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


def _share_above(ordered: Sequence[float], limit: float) -> float:
    """Share of ascending values above a limit."""
    return 1 - bisect_right(ordered, limit) / len(ordered)
