"""Streams completions from a server, in a process of its own, and measures their times.

    python -P benchmarks/gpu/serving/stream_client.py '{"port": 8000, "streams": 64, ...}'

The argument has the fields of Load. Prints `steady` once each stream has had a first token, `ending` at the
end of the measurement, and then the result as one line of JSON. It imports only the standard library and
parses no event, so that it takes little of the machine from the server.
"""

import argparse
import asyncio
import json
import math
import random
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

EVENT, LAST_EVENT = b"data: {", b"data: [DONE]"
NUM_TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')
TAIL_BYTES = 4096  # more than the last events have
MAX_TEXT = 300  # characters of a failure


@dataclass(frozen=True, slots=True)
class Load:
    """The load. Prompts are random token ids; every second request has temperature 1, the others 0.

    seconds: of the closed loop, in which each stream sends its next request after an answer; they begin
    when each stream has had a token. None: each stream sends one request, and the first answer that is
    whole ends the measurement. shortest_prompt, longest_prompt: in tokens.
    """

    port: int
    streams: int
    seconds: float | None
    shortest_prompt: int
    longest_prompt: int
    output_tokens: int
    vocab_size: int
    seed: int


@dataclass(slots=True)
class Answer:
    """Answer to a request. times_s: at which parts of it arrived; usually one event each."""

    sent_s: float
    times_s: list[float] = field(default_factory=list)
    num_tokens: int = 0
    failure: str = ""


class StreamedRequest(asyncio.Protocol):
    """Send one request on a connection of its own, whose answer is read up to its last event."""

    def __init__(self, request: bytes, answer: Answer, on_first: Callable[[], None]) -> None:
        self._request, self._answer, self._on_first = request, answer, on_first
        self._tail = b""
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if EVENT in data:
            self._answer.times_s.append(time.monotonic())
            if len(self._answer.times_s) == 1:
                self._on_first()
        if LAST_EVENT in self._tail and not self.ended.done():
            found = NUM_TOKENS.findall(self._tail)
            self._answer.num_tokens = int(found[-1]) if found else 0
            self.ended.set_result(None)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            text = self._tail.decode(errors="replace").strip()
            self._answer.failure = text[-MAX_TEXT:] or "the connection was closed without an answer"
            self.ended.set_result(None)


class Streams:
    """The streams of a load, and their answers."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._random = random.Random(load.seed)
        self._started = set[int]()  # streams that have had a token, or have failed
        self._steady, self._ending = asyncio.Event(), asyncio.Event()
        self._cpu_cores = 0.0
        self._steady_s = 0.0
        self._answers: list[Answer] = []

    async def run(self) -> dict[str, Any]:
        """Send the load, cut what is open at its end, and return the figures."""
        streams = [asyncio.create_task(self._stream(n)) for n in range(self._load.streams)]
        await self._measure()
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        return {
            **summarize(self._answers, self._steady_s, self._load.output_tokens),
            "client_cpu_cores": round(self._cpu_cores, 3),
        }

    async def _measure(self) -> None:
        await self._steady.wait()
        self._steady_s, cpu_s = time.monotonic(), time.process_time()
        print("steady", flush=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), self._load.seconds)
        print("ending", flush=True)
        self._cpu_cores = (time.process_time() - cpu_s) / (time.monotonic() - self._steady_s)

    async def _stream(self, number: int) -> None:
        """Send requests one after another; only one if there are no seconds, or if it fails."""

        def start() -> None:
            self._started.add(number)
            if len(self._started) == self._load.streams:
                self._steady.set()

        while True:
            answer = await self._send(start)
            if answer.failure or self._load.seconds is None:
                start()
                self._ending.set()
                return

    async def _send(self, on_first: Callable[[], None]) -> Answer:
        request = self._request()
        answer = Answer(time.monotonic())
        self._answers.append(answer)
        try:
            transport, streamed = await asyncio.get_running_loop().create_connection(
                lambda: StreamedRequest(request, answer, on_first), "127.0.0.1", self._load.port
            )
        except OSError as error:
            answer.failure = str(error)
            return answer
        try:
            await streamed.ended
        finally:
            transport.abort()
        return answer

    def _request(self) -> bytes:
        load = self._load
        length = self._random.randint(load.shortest_prompt, load.longest_prompt)
        body = json.dumps(
            {
                "prompt": self._random.choices(range(load.vocab_size), k=length),
                "max_tokens": load.output_tokens,
                "temperature": len(self._answers) % 2,
                "seed": len(self._answers),
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()
        head = (
            "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def summarize(answers: Sequence[Answer], steady_s: float, output_tokens: int) -> dict[str, Any]:
    """Figures of the answers. Times are of those sent after steady_s, when the streams do not start at once.

    short_answers: whole ones with another number of tokens than was asked for.
    """
    whole = [answer for answer in answers if answer.num_tokens]
    failures = [answer.failure for answer in answers if answer.failure]
    timed = [a for a in whole if a.sent_s >= steady_s] or whole or list(answers)
    ttft_s = [a.times_s[0] - a.sent_s for a in timed if a.times_s]
    tpot_s = [
        (a.times_s[-1] - a.times_s[0]) / ((a.num_tokens or len(a.times_s)) - 1)
        for a in timed
        if len(a.times_s) > 1 and a.num_tokens != 1
    ]
    gaps_s = [later - earlier for a in timed for earlier, later in pairwise(a.times_s)]
    figures: dict[str, Any] = {
        "whole_answers": len(whole),
        "short_answers": sum(a.num_tokens != output_tokens for a in whole),
        "failures": len(failures),
        "ttft_p50_s": percentile(ttft_s, 50), "ttft_p95_s": percentile(ttft_s, 95),
        "tpot_p50_s": percentile(tpot_s, 50), "tpot_p95_s": percentile(tpot_s, 95),
        "gap_p99_s": percentile(gaps_s, 99),
    }  # fmt: skip
    if failures:
        figures["first_failure"] = failures[0]
    return figures


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("load", type=json.loads)
    print(json.dumps(asyncio.run(Streams(Load(**parser.parse_args().load)).run())))
