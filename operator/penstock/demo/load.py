"""Closed-loop streaming clients, and the outcome of each request they sent."""

import asyncio
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

import aiohttp

from penstock.clients.machine.clock import monotonic

# Seconds without a byte after which an answer counts as lost. While other programs took most of two CPUs, a
# request behind 44 clients waited for 120 s.
READ_TIMEOUT_S = 300.0


class End(StrEnum):
    """How a request ended, as its client saw it."""

    DONE = "done"  # streamed to `data: [DONE]` with no error event
    CUT = "cut"  # an error event ended a stream that had started
    REFUSED = "refused"  # a non-2xx answer
    BROKEN = "broken"  # no answer, or a stream that ended without [DONE] or an error event


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one request. Times in seconds; `started_s` is on the monotonic clock."""

    started_s: float
    first_byte_s: float | None
    duration_s: float
    status: int | None
    chunks: int
    end: End
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """The requests of each client.

    A prompt is a random excerpt of `corpus`, so that requests share no prefix and each has its own KV
    blocks. A client waits `think_s` between an answer and its next request.
    """

    model: str
    corpus: Sequence[str]
    prompt_words: int = 60
    max_tokens: int = 96
    seed: int = 0
    think_s: float = 0.0

    def body(self, draw: random.Random) -> dict[str, object]:
        start = draw.randrange(max(1, len(self.corpus) - self.prompt_words))
        prompt = " ".join(self.corpus[start : start + self.prompt_words])
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "stream": True,
        }


class Load:
    """Closed-loop load on one gateway: each client sends its next request after an answer."""

    def __init__(self, base_url: str, workload: Workload) -> None:
        self._url = f"{base_url}/v1/chat/completions"
        self._workload = workload
        self._draw = random.Random(workload.seed)  # noqa: S311 - prompts, not secrets
        self._tasks: list[asyncio.Task[None]] = []
        self._wanted = 0
        self._remaining: int | None = None
        self._session: aiohttp.ClientSession | None = None
        self.outcomes: list[Outcome] = []
        self.in_flight = 0

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=READ_TIMEOUT_S),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._session is not None
        await self._session.close()

    def set_clients(self, count: int) -> None:
        """Set the number of clients. Surplus clients stop after their current request."""
        self._wanted = count
        self._tasks = [task for task in self._tasks if not task.done()]
        for number in range(len(self._tasks), count):
            self._tasks.append(asyncio.create_task(self._client(number)))

    def limit(self, requests: int) -> None:
        """Limit the number of further requests of all clients together."""
        self._remaining = requests

    async def finish(self) -> None:
        """Start no more requests, and wait for those in flight."""
        self._wanted = 0
        await self.wait()

    async def wait(self) -> None:
        """Wait until all clients have stopped, because of `limit` or `set_clients`."""
        await asyncio.gather(*self._tasks)

    async def _client(self, number: int) -> None:
        while number < self._wanted and self._remaining != 0:
            if self._remaining is not None:
                self._remaining -= 1
            self.in_flight += 1
            try:
                self.outcomes.append(await self._request())
            finally:
                self.in_flight -= 1
            await asyncio.sleep(self._workload.think_s)

    async def _request(self) -> Outcome:
        assert self._session is not None
        started_s = monotonic()
        first_byte_s: float | None = None
        chunks = 0
        tail = b""
        errored = False
        status: int | None = None

        def outcome(end: End, detail: str = "") -> Outcome:
            return Outcome(
                started_s, first_byte_s, monotonic() - started_s, status, chunks, end, detail
            )

        try:
            async with self._session.post(
                self._url, json=self._workload.body(self._draw)
            ) as answer:
                status = answer.status
                if status != 200:
                    return outcome(End.REFUSED, (await answer.text())[:200])
                async for line in answer.content:
                    if not line.startswith(b"data:"):
                        continue
                    if first_byte_s is None:
                        first_byte_s = monotonic() - started_s
                    chunks += 1
                    errored = errored or line.startswith(b'data: {"error"')
                    tail = line
        except (aiohttp.ClientError, TimeoutError) as error:
            return outcome(End.BROKEN, repr(error)[:200])
        if errored:
            return outcome(End.CUT)
        if tail.strip() != b"data: [DONE]":
            return outcome(End.BROKEN, "the stream stopped without [DONE] or an error event")
        return outcome(End.DONE)


def corpus(root: Path) -> list[str]:
    """Return the words of the documentation, which prompts are excerpts of.

    Words of more than 20 characters are left out: a URL or a line of JSON is a hundred tokens, and a prompt
    with several of them exceeds the tiny model's maximum length.
    """
    texts = sorted((root / "docs").rglob("*.md"))
    words = re.findall(r"\S+", "\n".join(text.read_text() for text in texts))
    return [word for word in words if len(word) <= 20]
