"""Workloads of a scenario file, and the requests drawn from them."""

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from penstock.sim.profile import Record
from penstock.sim.request import Request
from penstock.sim.workload.arrivals import Points, diurnal, stages, times
from penstock.sim.workload.lengths import Mix

# Tokens per id of a synthetic prefix.
PREFIX_BLOCK_TOKENS = 256


class Rate(Record):
    """Open-loop arrivals with a piecewise linear rate.

    points: (second, requests/s). cv: 1 for Poisson, above 1 for Gamma bursts.
    """

    kind: Literal["rate"] = "rate"
    points: tuple[tuple[float, float], ...] = Field(min_length=2)
    cv: float = Field(default=1.0, gt=0, le=30)
    mixes: tuple[Mix, ...] = Field(min_length=1)

    def rates(self, duration_s: float) -> Points:
        return self.points


class Stages(Record):
    """Open-loop arrivals in stages of a constant rate, in requests/s, for stage_s seconds each."""

    kind: Literal["stages"] = "stages"
    stages: tuple[float, ...] = Field(min_length=1)
    stage_s: float = Field(gt=0)
    cv: float = Field(default=1.0, gt=0, le=30)
    mixes: tuple[Mix, ...] = Field(min_length=1)

    def rates(self, duration_s: float) -> Points:
        return stages(self.stages, self.stage_s)


class Diurnal(Record):
    """Open-loop arrivals with a sinusoidal rate of mean·(1 ± swing) requests/s, from its minimum on."""

    kind: Literal["diurnal"] = "diurnal"
    mean: float = Field(gt=0)
    swing: float = Field(ge=0, le=1)
    period_s: float = Field(gt=0)
    cv: float = Field(default=1.0, gt=0, le=30)
    mixes: tuple[Mix, ...] = Field(min_length=1)

    def rates(self, duration_s: float) -> Points:
        return diurnal(self.mean, self.swing, self.period_s, duration_s)


class Closed(Record):
    """Closed loop: each user sends the next request think_s seconds, on average, after an answer.

    users: (second, number of users from then on).
    """

    kind: Literal["closed"] = "closed"
    users: tuple[tuple[float, int], ...] = Field(min_length=1)
    think_s: float = Field(gt=0)
    mixes: tuple[Mix, ...] = Field(min_length=1)


Open = Rate | Stages | Diurnal
Workload = Annotated[Open | Closed, Field(discriminator="kind")]


class RequestSource:
    """Draws requests: ids, lengths and prefixes from the mix of their arrival time."""

    def __init__(self, mixes: tuple[Mix, ...], random: Random) -> None:
        self._mixes = sorted(mixes, key=lambda mix: mix.from_s)
        self._random = random
        self._serials = count()

    def draw(self, arrival_s: float, user: int = 0) -> Request:
        mix = [m for m in self._mixes if m.from_s <= arrival_s][-1]
        drawn = mix.draw(self._random)
        prompt = drawn.prompt.draw(self._random)
        output = drawn.output.draw(self._random)
        serial = next(self._serials)
        prefix: tuple[int, ...] = (2**30 + serial,)  # unique: nothing is shared from here on
        if drawn.prefix_share:
            num_blocks = int(prompt * drawn.prefix_share) // PREFIX_BLOCK_TOKENS
            first = self._random.randrange(drawn.prefix_groups) * 100_000
            prefix = (*range(first, first + num_blocks), *prefix)
        return Request(
            f"r{serial}", arrival_s, prompt, output, prefix, user, requester=drawn.requester
        )


def open_requests(workload: Open, duration_s: float, random: Random) -> Iterator[Request]:
    """Draw the requests of an open-loop workload in order of arrival."""
    source = RequestSource(workload.mixes, random)
    for at_s in times(workload.rates(duration_s), workload.cv, random):
        if at_s >= duration_s:
            return
        yield source.draw(at_s)


class Users:
    """Users of a closed loop: `first` draws their first requests, `next_after` the following ones."""

    def __init__(self, workload: Closed, random: Random) -> None:
        self._workload = workload
        self._random = random
        self._source = RequestSource(workload.mixes, random)

    def first(self) -> list[Request]:
        requests = []
        before = 0
        for from_s, users in self._workload.users:
            think_s = self._workload.think_s
            requests += [
                self._source.draw(from_s + self._random.uniform(0, think_s), user)
                for user in range(before, users)
            ]
            before = max(before, users)
        return sorted(requests, key=lambda request: request.arrival_s)

    def next_after(self, request: Request, now: float) -> Request | None:
        """Next request of the user whose request ended; None if the user is gone by then."""
        at_s = now + self._random.expovariate(1 / self._workload.think_s)
        users = [users for from_s, users in self._workload.users if from_s <= at_s][-1]
        return self._source.draw(at_s, request.user) if request.user < users else None


def has_prefixes(workload: Open | Closed) -> bool:
    return any(c.prefix_share for mix in workload.mixes for c in mix.classes)
