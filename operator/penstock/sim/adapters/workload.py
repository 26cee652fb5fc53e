"""Requests for adapters: popularity, bursts, shifts of popularity, new adapters, adapters used together.

Base popularity follows Zipf's law, unless shares are given: the adapter of rank k gets a share proportional
to k^-exponent.
"""

from bisect import bisect
from itertools import accumulate
from random import Random

from penstock.core.adapters.adapter import AdapterVersion
from penstock.sim.adapters.scenario import Adapters
from penstock.sim.request import Request
from penstock.sim.workload.arrivals import times

# Requests of a burst, and the mean of the exponential gaps between them, in seconds.
BURST_LENGTH, BURST_GAP_S = 8, 3.0
# Share of the adapters whose ranks change in a shift.
SHIFTED = 0.2


def load_times(adapters: Adapters, seed: int) -> dict[AdapterVersion, float]:
    """Load time of each adapter, in seconds."""
    random = Random(f"loads {seed}")
    return {version: random.uniform(*adapters.load_s) for version in versions(adapters)}


def versions(adapters: Adapters) -> list[AdapterVersion]:
    """List all adapters, by index."""
    return [AdapterVersion(f"a{i}", f"pvc://claim/{i}") for i in range(adapters.total)]


def requests_of(adapters: Adapters, duration_s: float, seed: int) -> list[Request]:
    """Draw all requests, in order of arrival. Those of bursts count in the mean rate."""
    random = Random(f"calls {seed}")
    popularity = Popularity(adapters, duration_s, random)
    rps = adapters.rps / (1 + adapters.burst_share * (BURST_LENGTH - 1))
    drawn: list[tuple[float, int]] = []
    for at_s in times([(0.0, rps), (duration_s, rps)], adapters.cv, random):
        adapter = popularity.draw(at_s)
        drawn.append((at_s, adapter))
        if random.random() < adapters.burst_share:
            drawn += _burst(adapters, at_s, adapter, random)
    names = [version.engine_name for version in versions(adapters)]
    prompt, output = adapters.prompt, adapters.output
    return [
        Request(f"r{i}", at_s, prompt.draw(random), output.draw(random), adapter=names[adapter])
        for i, (at_s, adapter) in enumerate(each for each in sorted(drawn) if each[0] < duration_s)
    ]


def _burst(
    adapters: Adapters, at_s: float, adapter: int, random: Random
) -> list[tuple[float, int]]:
    """The other requests of a burst. Groups are the adapters whose indices follow one another."""
    first = adapter - adapter % adapters.group_size
    group = range(first, min(first + adapters.group_size, adapters.total))
    follow = []
    for number in range(1, BURST_LENGTH):
        at_s += random.expovariate(1 / BURST_GAP_S)
        follow.append((at_s, group[(adapter - first + number) % len(group)]))
    return follow


class Popularity:
    """Draws adapters by their popularity. The index of an adapter says nothing about its rank.

    by_rank: indices of the adapters. weights: relative popularity, by rank.
    """

    def __init__(self, adapters: Adapters, duration_s: float, random: Random) -> None:
        self._random = random
        self.by_rank = list(range(adapters.total))
        random.shuffle(self.by_rank)
        zipf = ((k + 1) ** -adapters.exponent for k in range(adapters.total))
        self.weights = adapters.shares or tuple(zipf)
        self._cumulated = list(accumulate(self.weights))
        self._born_s = [
            random.random() * duration_s if random.random() < adapters.new_share else 0.0
            for _ in self.by_rank
        ]
        self._shift_s = adapters.shift_s
        self._next_shift_s = adapters.shift_s or float("inf")

    def draw(self, at_s: float) -> int:
        """An adapter that exists at this time."""
        while at_s >= self._next_shift_s:
            self._next_shift_s += self._shift_s
            self._shift()
        while True:
            rank = bisect(self._cumulated, self._random.random() * self._cumulated[-1])
            adapter = self.by_rank[min(rank, len(self.by_rank) - 1)]
            if self._born_s[adapter] <= at_s:
                return adapter

    def _shift(self) -> None:
        """Permute the ranks of some adapters."""
        number = round(SHIFTED * len(self.by_rank))
        ranks = self._random.sample(range(len(self.by_rank)), number)
        moved = [self.by_rank[rank] for rank in ranks]
        self._random.shuffle(moved)
        for rank, adapter in zip(ranks, moved, strict=True):
            self.by_rank[rank] = adapter
