"""Tests of the publisher of block events: sequence numbers, replay, bounds and bad requests."""

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from aiohttp.test_utils import unused_port
from tests.engine_server.kv_events.vllm_subscriber import Subscriber, subscriber, wait_until

from penstock_engine.core.kv_cache.block_events import BlocksRemoved
from penstock_engine.kv_events import publisher as publishing
from penstock_engine.kv_events.config import KVEventsConfig
from penstock_engine.kv_events.encoding import BatchEncoder
from penstock_engine.kv_events.publisher import EventPublisher, Outcome

EVENT = BlocksRemoved((bytes(32),))


class Running:
    """A publisher on sockets in a folder, and the outcomes of its batches."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.endpoint, self.replay_endpoint = f"ipc://{folder}/pub", f"ipc://{folder}/replay"
        self.outcomes: list[Outcome] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        config = KVEventsConfig(
            enable_kv_cache_events=True, endpoint=self.endpoint, replay_endpoint=self.replay_endpoint,
            **settings,
        )  # fmt: skip
        self.publisher = EventPublisher(config, BatchEncoder(16, None), self._count)

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.publisher.publish([EVENT])

    def wait(self, count: int) -> None:
        wait_until(lambda: len(self.outcomes) >= count)

    def _count(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome == "published":
            self.may_go_on.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path has at most 107 bytes
        yield Path(folder)


def joined(running: Running, receiver: Subscriber) -> int:
    """Publishes until the subscriber receives something. Returns the number that it received first."""
    while True:
        running.publish(1)
        if receiver.socket.poll(20):
            return receiver.receive()[0]


def numbers(batches: list[tuple[int, Any]]) -> list[int]:
    return [number for number, _ in batches]


def test_a_subscriber_gets_consecutive_numbers(folder: Path) -> None:
    running = Running(folder)
    with subscriber(running.endpoint) as receiver:
        first = joined(running, receiver)
        running.publish(3)
        received = [receiver.receive()[0] for _ in range(3)]
    running.publisher.close()

    assert received == [first + 1, first + 2, first + 3]


def test_a_late_subscriber_gets_what_it_missed_by_a_replay(folder: Path) -> None:
    running = Running(folder)
    running.publish(5)
    running.wait(5)
    with subscriber(running.endpoint) as receiver:
        replayed = receiver.replay(running.replay_endpoint, 2)
        none = receiver.replay(running.replay_endpoint, 5)
    running.publisher.close()

    assert numbers(replayed) == [2, 3, 4]
    assert none == []
    assert [batch.data_parallel_rank for _, batch in replayed] == [0, 0, 0]


@pytest.mark.parametrize("count", [1, 3])
def test_a_replay_has_the_last_batches(folder: Path, count: int) -> None:
    running = Running(folder, buffer_steps=count)
    running.publish(8)
    running.wait(8)
    with subscriber(running.endpoint) as receiver:
        replayed = receiver.replay(running.replay_endpoint, 0)
    running.publisher.close()

    assert numbers(replayed) == [*range(8 - count, 8)]


def test_the_payloads_for_replay_have_a_bound_in_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_bytes = len(BatchEncoder(16, None).encode(1e9, [EVENT]))
    monkeypatch.setattr(publishing, "MAX_REPLAY_BYTES", 2 * size_bytes)
    running = Running(folder)
    running.publish(8)
    running.wait(8)
    with subscriber(running.endpoint) as receiver:
        replayed = receiver.replay(running.replay_endpoint, 0)
    running.publisher.close()

    assert numbers(replayed) == [6, 7]


def test_a_full_queue_drops_batches_and_their_numbers_are_missing(folder: Path) -> None:
    running = Running(folder, max_queue_size=2)
    running.may_go_on.clear()
    running.publish(1)
    running.wait(1)  # the thread waits after the first batch
    running.publish(4)
    assert running.outcomes == ["published", "dropped", "dropped"]
    running.may_go_on.set()
    running.wait(5)
    running.publish(1)
    running.wait(6)
    with subscriber(running.endpoint) as receiver:
        replayed = receiver.replay(running.replay_endpoint, 0)
    running.publisher.close()

    assert numbers(replayed) == [0, 1, 2, 5]


def test_a_batch_that_cannot_be_encoded_is_dropped(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(folder)
    running.publisher.publish([BlocksRemoved((None,))])  # type: ignore[arg-type]
    running.publish(1)
    running.wait(2)
    running.publisher.close()

    assert running.outcomes == ["dropped", "published"]
    assert "batch 0 of block events is dropped" in caplog.text


def test_a_subscriber_that_reads_nothing_stops_neither_batches_nor_others(folder: Path) -> None:
    running = Running(folder, hwm=1)
    with subscriber(running.endpoint) as idle, subscriber(running.endpoint) as receiver:
        idle.socket.setsockopt(zmq.RCVHWM, 1)
        joined(running, receiver)
        running.publish(5000)
        running.wait(5000)
        while joined(running, receiver) < 5000:
            pass
    running.publisher.close()

    assert set(running.outcomes) == {"published"}


@pytest.mark.parametrize(
    "request_frames",
    [(b"",), (b"", b"1"), (b"", bytes(9)), (b"", b"x", bytes(8)), (b"", bytes(2000))],
)
def test_a_bad_request_for_replay_is_ignored(
    folder: Path, request_frames: tuple[bytes, ...]
) -> None:
    running = Running(folder)
    running.publish(1)
    running.wait(1)
    with subscriber(running.endpoint) as receiver:
        context: zmq.Context[Any] = zmq.Context()
        bad = context.socket(zmq.DEALER)
        bad.connect(running.replay_endpoint)
        bad.send_multipart(request_frames)
        replayed = receiver.replay(running.replay_endpoint, 0)
        answered = bad.poll(0)
        context.destroy(linger=0)
    running.publisher.close()

    assert (numbers(replayed), answered) == ([0], 0)


def test_only_subscribers_of_the_topic_get_batches(folder: Path) -> None:
    running = Running(folder, topic="kv")
    with (
        subscriber(running.endpoint, "other") as other,
        subscriber(running.endpoint, "kv") as receiver,
    ):
        joined(running, receiver)
        assert not other.socket.poll(50)
    running.publisher.close()


def test_what_is_queued_is_sent_before_the_end(folder: Path) -> None:
    running = Running(folder)
    with subscriber(running.endpoint) as receiver:
        first = joined(running, receiver)
        running.publish(100)
        running.publisher.close()
        running.publisher.close()
        received = [receiver.receive()[0] for _ in range(100)]

    assert received == [*range(first + 1, first + 101)]


@pytest.mark.parametrize("endpoint", ["ipc:///nowhere/at/all", "tcp://*:x"])
def test_an_endpoint_that_cannot_be_bound_is_an_error(endpoint: str) -> None:
    config = KVEventsConfig(enable_kv_cache_events=True, endpoint=endpoint)
    with pytest.raises(OSError, match=endpoint.replace("*", r"\*")):
        EventPublisher(config, BatchEncoder(16, None), lambda _: None)


@pytest.mark.parametrize(
    ("host", "address"), [("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("::1", "[::1]")]
)
def test_a_star_is_the_address_of_the_http_server(host: str, address: str) -> None:
    ports = unused_port(), unused_port()
    config = KVEventsConfig(
        enable_kv_cache_events=True, endpoint=f"tcp://*:{ports[0]}", replay_endpoint=f"tcp://*:{ports[1]}",
    )  # fmt: skip
    publisher = EventPublisher(config, BatchEncoder(16, None), lambda _: None, host)
    for port in ports:
        with socket.create_connection((address.strip("[]"), port), timeout=10):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.9", port), timeout=10)
    publisher.close()
