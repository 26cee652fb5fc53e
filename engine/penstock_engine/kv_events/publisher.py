"""Publishes batches of block events on a ZeroMQ PUB socket, and repeats earlier ones on a ROUTER socket.

    engine's thread --publish--> bounded queue --> own thread: encode, send, keep for replay

Each batch has a sequence number, which starts at 0 with the process. A batch that is dropped, because the
queue is full, has one too: a subscriber sees the gap, and that a replay does not fill it.

A message has three frames: topic, number in 8 bytes (big-endian), payload. A subscriber asks for a replay
with a DEALER socket: an empty frame, and the first number that it misses in 8 bytes. Each batch from there on
is a message with an empty frame before these three. A message with number -1 and no payload ends it.
"""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import zmq

from penstock_engine.core.kv_cache.block_events import BlockEvent
from penstock_engine.kv_events.config import KVEventsConfig
from penstock_engine.kv_events.encoding import BatchEncoder

logger = logging.getLogger(__name__)

Outcome = Literal["published", "dropped"]

ANY_HOST = "0.0.0.0"  # noqa: S104 - an address to compare with, and vLLM's meaning of `*`
ANY_HOSTS = (ANY_HOST, "::", "")
NUMBER_BYTES = 8
END_OF_REPLAY = (-1).to_bytes(NUMBER_BYTES, "big", signed=True)
# Bound on the payloads that are kept for replay, besides buffer_steps: a batch of a long prompt has 40 KB.
MAX_REPLAY_BYTES = 64 * 2**20
# Bound on what a peer may send: subscriptions and requests for replay are a few bytes.
MAX_RECEIVED_BYTES = 1024
# Interval at which the thread answers one request for replay, so that many of them take no time from batches.
REPLAY_INTERVAL_S = 0.1
# Requests for replay of one peer that wait; it waits itself with further ones.
MAX_REPLAY_REQUESTS = 8
# Time to send the last batches when the engine ends.
LINGER_MS = 1000


class EventPublisher:
    """Publishes batches from a thread of its own."""

    def __init__(
        self,
        config: KVEventsConfig,
        encoder: BatchEncoder,
        on_batch: Callable[[Outcome], None],
        host: str = ANY_HOST,
    ) -> None:
        """on_batch: called for each batch, on either thread. host: numeric address that `*` in an endpoint
        stands for. Raises OSError for a bad endpoint."""
        self._config = config
        self._encoder = encoder
        self._on_batch = on_batch
        self._host = host
        self._topic = config.topic.encode()
        self._queue: queue.Queue[tuple[int, float, list[BlockEvent]] | None] = queue.Queue(
            config.max_queue_size
        )
        self._next_number = 0
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._is_closing = False
        self._context = zmq.Context()
        try:
            self._open_sockets()
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise OSError(str(error)) from error
        self._thread = threading.Thread(target=self._serve, name="kv-events", daemon=True)
        self._thread.start()

    def publish(self, events: list[BlockEvent]) -> None:
        """Publish a batch. Does not wait: if the queue is full, the batch is dropped.

        Not thread-safe: batches get numbers in the order of calls.
        """
        number = self._next_number
        self._next_number += 1
        try:
            self._queue.put_nowait((number, time.time(), events))
        except queue.Full:
            self._on_batch("dropped")

    def close(self) -> None:
        """Send what is in the queue, and close the sockets. Waits for it. May be called again."""
        self._is_closing = True
        with suppress(queue.Full):
            self._queue.put_nowait(None)  # wakes the thread if it waits
        self._thread.join()
        self._context.destroy()

    def _open_sockets(self) -> None:
        config = self._config
        self._pub = self._socket(zmq.PUB, config.hwm)
        if config.is_bound:
            self._bind(self._pub, config.endpoint)
        else:
            self._pub.connect(config.endpoint)
        self._replay: Any = None
        if config.replay_endpoint is not None:
            # A whole replay and its end have room in the queue of one subscriber, which would miss the rest.
            self._replay = self._socket(zmq.ROUTER, config.buffer_steps + 1)
            self._replay.setsockopt(zmq.RCVHWM, MAX_REPLAY_REQUESTS)
            self._bind(self._replay, config.replay_endpoint)

    def _bind(self, socket: Any, endpoint: str) -> None:
        """Bind a socket. `*` is the address of the HTTP server, so that the same peers reach both."""
        if endpoint.startswith("tcp://*:") and self._host not in ANY_HOSTS:
            host = f"[{self._host}]" if ":" in self._host else self._host
            endpoint = endpoint.replace("*", host, 1)
        socket.bind(endpoint)

    def _socket(self, kind: int, num_messages: int) -> Any:
        """A socket that keeps up to num_messages for each slow peer."""
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.SNDHWM, num_messages)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_RECEIVED_BYTES)
        return socket

    def _serve(self) -> None:
        wait_s = None if self._replay is None else REPLAY_INTERVAL_S
        replayed_s = 0.0
        while not (self._is_closing and self._queue.empty()):
            if self._replay is not None and time.monotonic() >= replayed_s + REPLAY_INTERVAL_S:
                replayed_s = time.monotonic()
                self._answer_replay_request()
            try:
                batch = self._queue.get(timeout=wait_s)
            except queue.Empty:
                continue
            if batch is not None:
                self._send(*batch)

    def _send(self, number: int, time_s: float, events: list[BlockEvent]) -> None:
        try:
            payload = self._encoder.encode(time_s, events)
            self._pub.send_multipart((self._topic, number.to_bytes(NUMBER_BYTES, "big"), payload))
        except Exception:
            logger.exception("batch %d of block events is dropped", number)
            self._on_batch("dropped")
            return
        self._on_batch("published")
        if self._replay is None:
            return
        self._kept.append((number, payload))
        self._kept_bytes += len(payload)
        while len(self._kept) > self._config.buffer_steps or self._kept_bytes > MAX_REPLAY_BYTES:
            self._kept_bytes -= len(self._kept.popleft()[1])

    def _answer_replay_request(self) -> None:
        """Answer a request for replay, if there is one, with the kept batches from its number on."""
        if not self._replay.poll(0):
            return
        frames = self._replay.recv_multipart()
        if len(frames) != 3 or len(frames[2]) != NUMBER_BYTES:
            logger.warning(
                "a request for replay of block events has frames of %s bytes: send an empty one, and one of "
                "%d bytes with the first number", [len(frame) for frame in frames[1:5]], NUMBER_BYTES,
            )  # fmt: skip
            return
        peer, first = frames[0], int.from_bytes(frames[2], "big")
        for number, payload in self._kept:
            if number >= first:
                self._replay.send_multipart(
                    (peer, b"", self._topic, number.to_bytes(NUMBER_BYTES, "big"), payload)
                )
        self._replay.send_multipart((peer, b"", b"", END_OF_REPLAY, b""))
