"""Longest time for which one input keeps the gateway's event loop from all other requests.

    python -m benchmarks.gateway.stalls

A task that does nothing but let others run measures the gaps between its turns, in processor time: other
processes do not count. "loop" is the processor time of all gaps above 0.5 ms. Best of three runs. The inputs
are what one engine sends, one client sends, and one namespace changes. Bar: 100 ms for bodies, 15 ms for
others.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial

from penstock.core.routing.apis import CHAT
from penstock.core.routing.pick import Side
from penstock.gateway.apis.model_field import replace_model
from penstock.gateway.apis.response_usage import ResponseUsage, error_status
from penstock.gateway.apis.sse import SseBuffer, has_data, without_usage_event
from penstock.gateway.snapshots.builder import SnapshotBuilder
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.gateway.snapshots.store import SnapshotStore

MIB = 1 << 20
REPEATS = 3
MIN_GAP_S = 0.0005  # shorter gaps are the tasks' own switches
Input = Callable[[], Awaitable[None]]


async def measure(run: Input) -> tuple[float, float]:
    """Longest gap between two turns of other tasks, and processor time of the input, in seconds."""
    gaps_s: list[float] = []

    async def tick() -> None:
        last_s = time.process_time()
        while True:
            await asyncio.sleep(0)
            now_s = time.process_time()
            gaps_s.append(now_s - last_s)
            last_s = now_s

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.1)
    gaps_s.clear()
    await run()
    ticking.cancel()
    return max(gaps_s), sum(gap_s for gap_s in gaps_s if gap_s > MIN_GAP_S)


def byte_by_byte() -> Input:
    sse = SseBuffer(CHAT)
    sse.feed(b"data: " + b"x" * (MIB - 1000))

    async def run() -> None:
        for _ in range(300):
            sse.feed(b"x")
            await asyncio.sleep(0)

    return run


def chunk(event: bytes) -> Input:
    """The first chunk of a stream, which is searched for an error twice: before and while it is counted."""

    async def run() -> None:
        events = SseBuffer(CHAT).feed(event)
        if has_data(events):
            error_status(events)
            ResponseUsage(CHAT, is_stream=True).feed(events)
        without_usage_event(events)
        await asyncio.sleep(0)

    return run


def rename(body: bytes) -> Input:
    async def run() -> None:
        replace_model(body, "chat", "other")
        await asyncio.sleep(0)

    return run


def service_body(number: int, percent: int = 100) -> dict[str, object]:
    condition = {"type": "SpecValid", "status": "True", "observedGeneration": 1}
    traffic = {"revision": "r1", "cohort": "Primary", "percent": percent}
    return {
        "metadata": {
            "namespace": f"n{number % 20}",
            "name": f"s{number}",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"model": {"uri": "file:///m"}, "objectives": {"ttft": "1s", "tpot": "50ms"}},
        "status": {"modelName": f"s{number}", "traffic": [traffic], "conditions": [condition]},
    }


def pod_body(number: int) -> dict[str, object]:
    labels = {"serving.penstock.dev/service": f"s{number}", "serving.penstock.dev/revision": "r1"}
    container = {"name": "engine", "ports": [{"name": "http", "containerPort": 8000}]}
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"namespace": f"n{number % 20}", "name": f"p{number}", "labels": labels},
        "spec": {"containers": [container]},
        "status": {"podIP": "10.0.0.1", "conditions": conditions},
    }


def changes_of_one_service() -> Input:
    builder, store = SnapshotBuilder(), SnapshotStore()
    services = [service_body(number) for number in range(500)]
    pods = [pod_body(number) for number in range(500)]
    store.publish(builder.build(services, pods))

    async def run() -> None:
        for percent in range(10):
            services[7] = service_body(7, percent)
            store.publish(builder.build(services, pods))
            await asyncio.sleep(0)

    return run


def changes_while_requests_wait() -> Input:
    def service(name: str, number: int = 1) -> Service:
        return Service("n", name, name, 0, {Side("r1"): number}, ())

    store = SnapshotStore()
    store.publish(Snapshot((service("mine"), service("other"))))

    async def wait() -> None:
        while store.current.services[0].weights:
            await store.wait_for_change("n/mine", 60.0)

    async def run() -> None:
        waits = []
        for _ in range(1000):
            waits.append(asyncio.create_task(wait()))
            await asyncio.sleep(0)
        for number in range(2, 12):
            store.publish(Snapshot((service("mine"), service("other", number))))
            await asyncio.sleep(0)
        for task in waits:
            task.cancel()
            await asyncio.sleep(0)

    return run


def inputs() -> dict[str, tuple[Callable[[], Input], float]]:
    """Return the inputs by name: a function that makes one anew, and the bar in seconds."""
    numbers = b",".join(b"%d" % (n % 50_000) for n in range(4 * MIB // 6 - 100))
    decoys = b'{"\\"model":"chat"},' * 7 + b'{"model":"chat"},' * 7
    logprobs = b'{"token":"a","logprob":-1.5,"bytes":[97]},' * (MIB // 42)
    chunks = {
        "an event of 1 MiB of text": b'data: {"t":"%s"}\n\n' % (b"x" * MIB),
        "an event of 1 MiB of log-probabilities": b'data: {"choices":[{"text":"","logprobs":[%s1],'
        b'"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
        % logprobs,
        "an event of 1 MiB of line ends": b'data: {"content":"%s"}\n\n' % (b"\\n" * (MIB // 2)),
        "400 KiB of events": b"data: x\n\n" * 45_000 + b": x\n\n",
    }
    bodies = {
        "renamed: 14 decoys, 4 MiB of numbers": b'{"x":[%s1],"prompt":[%s],"model":"chat"}'
        % (decoys, numbers),
        "renamed: an escaped key, 4 MiB of numbers": b'{"mod\\u0065l":"chat","prompt":[%s]}'
        % numbers,
        "renamed: 1 MiB of fields `model`": b'{%s"model":"chat"}'
        % (b'"model":"chat",' * (MIB // 15)),
    }
    return {
        "300 bytes of an event of 1 MiB": (byte_by_byte, 0.015),
        **{name: (partial(chunk, events), 0.015) for name, events in chunks.items()},
        **{name: (partial(rename, body), 0.1) for name, body in bodies.items()},
        "10 changes of one of 500 services": (changes_of_one_service, 0.015),
        "10 changes while 1,000 requests wait": (changes_while_requests_wait, 0.015),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    is_missed = False
    print(f"{'':42} {'longest':>10} {'loop':>10}")
    for name, (prepare, bar_s) in inputs().items():
        longest_s, loop_s = min(asyncio.run(measure(prepare())) for _ in range(REPEATS))
        is_missed = is_missed or longest_s > bar_s
        print(f"{name:42} {1e3 * longest_s:7.1f} ms {1e3 * loop_s:7.1f} ms")
    sys.exit(is_missed)


if __name__ == "__main__":
    main()
