"""Open-loop streaming clients of a service, and the fraction of requests within its objectives."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
from benchmarks.http_load import stream_events
from tests.support.background import background

from penstock.sim.report import quantile


@dataclass(frozen=True, slots=True)
class Objectives:
    """Bounds of a request, in seconds: its first token, and the mean of each further one."""

    ttft_s: float
    tpot_s: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of a stream in seconds. is_whole: it had all tokens."""

    ttft_s: float
    tpot_s: float
    is_whole: bool

    def meets(self, objectives: Objectives) -> bool:
        return (
            self.is_whole and self.ttft_s <= objectives.ttft_s and self.tpot_s <= objectives.tpot_s
        )


LOST = Timing(0.0, 0.0, is_whole=False)


@dataclass(slots=True)
class InteractiveLoad:
    """Requests of one model at random times. rate: per second. words: of which prompts are excerpts.

    Two loads with the same seed send the same requests at the same times.
    """

    url: str
    model: str
    words: Sequence[str]
    rate: float
    prompt_words: int = 40
    max_tokens: int = 24
    timings: list[Timing] = field(default_factory=list)

    @asynccontextmanager
    async def running(self, seed: int) -> AsyncIterator[None]:
        """Send requests while the block runs, then wait for their ends."""
        self.timings = []
        draw = random.Random(seed)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        async with (
            httpx.AsyncClient(base_url=self.url, timeout=60, limits=limits) as client,
            asyncio.TaskGroup() as requests,
        ):

            async def send_all() -> None:
                at_s = time.monotonic()
                while True:
                    at_s += draw.expovariate(self.rate)
                    await asyncio.sleep(at_s - time.monotonic())
                    requests.create_task(self._request(client, self._body(draw)))

            async with background(send_all()):
                yield

    def attainment(self, objectives: Objectives) -> float:
        """Fraction of the requests that were within the objectives. A lost one is not."""
        return sum(each.meets(objectives) for each in self.timings) / len(self.timings)

    def quantile_s(self, time_of: Callable[[Timing], float], q: float = 0.99) -> float:
        """Quantile of a time of the requests that were answered."""
        return quantile(sorted(time_of(each) for each in self.timings if each.is_whole), q)

    @property
    def num_lost(self) -> int:
        """Requests that were refused, cut or not answered."""
        return sum(not each.is_whole for each in self.timings)

    def _body(self, draw: random.Random) -> dict[str, object]:
        start = draw.randrange(len(self.words) - self.prompt_words)
        prompt = " ".join(self.words[start : start + self.prompt_words])
        return {
            "model": self.model, "prompt": prompt, "max_tokens": self.max_tokens, "ignore_eos": True,
        }  # fmt: skip

    async def _request(self, client: httpx.AsyncClient, body: dict[str, object]) -> None:
        started_s, times, last = time.monotonic(), list[float](), ""
        try:
            async for at_s, text in stream_events(client, body):
                times.append(at_s)
                last = text
        except (httpx.TransportError, RuntimeError):
            pass  # lost
        if '"finish_reason":"length"' not in last.replace(" ", ""):
            self.timings.append(LOST)
            return
        tpot_s = (times[-1] - times[0]) / (self.max_tokens - 1)
        self.timings.append(Timing(times[0] - started_s, tpot_s, is_whole=True))
