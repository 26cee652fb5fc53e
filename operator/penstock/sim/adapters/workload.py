"""Requests for adapters: popularity, bursts, shifts of popularity, new adapters, adapters used together.

Base popularity follows Zipf's law, unless shares are given: the adapter of rank k gets a share proportional
to k^-exponent.
"""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from penstock.sim.workload.arrivals import times
from penstock.sim.workload.lengths import LogNormal

# Lengths of a chat: most prompts and answers are some hundred tokens.
PROMPT = LogNormal(median=500, p99=4000, max=8000)
OUTPUT = LogNormal(median=250, p99=1000, max=2000)


@dataclass(frozen=True, slots=True)
class Step:
    """Growth of one adapter's arrivals: `factor` times as many from at_s on."""

    at_s: float
    adapter: int
    factor: float


@dataclass(frozen=True, slots=True)
class AdapterWorkload:
    """Open-loop requests."""

    rps: float  # mean arrivals per second
    duration_s: float = 1800.0
    num_adapters: int = 1000
    exponent: float = 1.0
    shares: tuple[float, ...] = ()  # relative popularity by rank; empty: Zipf's law
    load_s: tuple[float, float] = (0.1, 1.0)  # bounds of the uniform load times
    loads_at_once: int = 1  # of one engine
    cv: float = 1.0
    # Share of the arrivals that start a burst of burst_length requests, exponential gaps with mean
    # burst_gap_s; they count in rps
    burst_share: float = 0.0
    burst_length: int = 8
    burst_gap_s: float = 3.0
    # Time after which a share `shifted` of the adapters change ranks; 0: never
    shift_s: float = 0.0
    shifted: float = 0.2
    new_share: float = 0.0  # share of the adapters that appear during the run, evenly over its time
    # Adapters used together: a burst goes round the adapters of a group. 1: no groups.
    group_size: int = 1
    step: Step | None = None
    prompt: LogNormal = PROMPT
    output: LogNormal = OUTPUT

    @property
    def is_independent(self) -> bool:
        """Whether each request draws its adapter independently of the others and of the time."""
        return not (self.burst_share or self.shift_s or self.new_share or self.step)


@dataclass(frozen=True, slots=True)
class Call:
    """A request for an adapter, by its index."""

    at_s: float
    adapter: int
    prompt_tokens: int
    output_tokens: int


def load_times(workload: AdapterWorkload, seed: int) -> list[float]:
    """Load time of each adapter, in seconds."""
    random = Random(f"loads {seed}")
    return [random.uniform(*workload.load_s) for _ in range(workload.num_adapters)]


def calls(workload: AdapterWorkload, seed: int) -> list[Call]:
    """Draw all requests, in order of arrival."""
    random = Random(f"calls {seed}")
    popularity = Popularity(workload, random)
    factor = 1 + workload.burst_share * (workload.burst_length - 1)
    points = [(0.0, workload.rps / factor), (workload.duration_s, workload.rps / factor)]
    drawn: list[tuple[float, int]] = []
    for at_s in times(points, workload.cv, random):
        adapter = popularity.draw(at_s)
        drawn.append((at_s, adapter))
        if random.random() < workload.burst_share:
            drawn += _burst(workload, at_s, adapter, random)
    if workload.step is not None:
        drawn += _extra(workload.step, drawn, random)
    return [
        Call(at_s, adapter, workload.prompt.draw(random), workload.output.draw(random))
        for at_s, adapter in sorted(drawn)
        if at_s < workload.duration_s
    ]


def _burst(
    workload: AdapterWorkload, at_s: float, adapter: int, random: Random
) -> list[tuple[float, int]]:
    """The other requests of a burst. Groups are the adapters whose indices follow one another."""
    first = adapter - adapter % workload.group_size
    group = [a for a in range(first, first + workload.group_size) if a < workload.num_adapters]
    follow = []
    for number in range(1, workload.burst_length):
        at_s += random.expovariate(1 / workload.burst_gap_s)
        follow.append((at_s, group[(adapter - first + number) % len(group)]))
    return follow


def _extra(
    step: Step, drawn: Sequence[tuple[float, int]], random: Random
) -> list[tuple[float, int]]:
    """Arrivals that a step adds."""
    own = [at_s for at_s, adapter in drawn if adapter == step.adapter and at_s >= step.at_s]
    if len(own) < 2:
        return []
    number = round(len(own) * (step.factor - 1))
    return [(random.uniform(step.at_s, own[-1]), step.adapter) for _ in range(number)]


def shares(workload: AdapterWorkload, seed: int) -> list[float]:
    """Share of the requests by adapter. Raises ValueError if requests are no independent draws."""
    if not workload.is_independent:
        raise ValueError("adapters depend on earlier requests or on the time")
    return Popularity(workload, Random(f"calls {seed}")).shares()


class Popularity:
    """Draws adapters by their popularity. The index of an adapter says nothing about its rank."""

    def __init__(self, workload: AdapterWorkload, random: Random) -> None:
        self._workload, self._random = workload, random
        number = workload.num_adapters
        self._adapters = list(range(number))  # by rank
        if workload.step is None:
            random.shuffle(self._adapters)
        zipf = ((k + 1) ** -workload.exponent for k in range(number))
        self._weights = workload.shares or tuple(zipf)  # by rank
        self._cumulated = list(accumulate(self._weights))
        self._born_s = [
            random.random() * workload.duration_s if random.random() < workload.new_share else 0.0
            for _ in range(number)
        ]
        self._next_shift_s = workload.shift_s or float("inf")

    def shares(self) -> list[float]:
        """Share of the draws by adapter, if all exist."""
        by_adapter = [0.0] * len(self._adapters)
        for weight, adapter in zip(self._weights, self._adapters, strict=True):
            by_adapter[adapter] = weight / self._cumulated[-1]
        return by_adapter

    def draw(self, at_s: float) -> int:
        """An adapter that exists at this time."""
        while at_s >= self._next_shift_s:
            self._next_shift_s += self._workload.shift_s
            self._shift()
        while True:
            rank = bisect(self._cumulated, self._random.random() * self._cumulated[-1])
            adapter = self._adapters[min(rank, len(self._adapters) - 1)]
            if self._born_s[adapter] <= at_s:
                return adapter

    def _shift(self) -> None:
        """Permute the ranks of some adapters."""
        number = round(self._workload.shifted * len(self._adapters))
        ranks = self._random.sample(range(len(self._adapters)), number)
        moved = [self._adapters[rank] for rank in ranks]
        self._random.shuffle(moved)
        for rank, adapter in zip(ranks, moved, strict=True):
            self._adapters[rank] = adapter
