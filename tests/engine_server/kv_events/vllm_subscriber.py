"""A subscriber of block events, with the message classes that vLLM 0.32 declares."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import zmq

TIMEOUT_MS = 20_000
END = -1


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class KVCacheEvent(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    pass


class BlockStored(KVCacheEvent):
    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None


class BlockRemoved(KVCacheEvent):
    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class AllBlocksCleared(KVCacheEvent):
    pass


class KVEventBatch(EventBatch):
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]


Numbered = tuple[int, KVEventBatch]


def decode(payload: bytes) -> KVEventBatch:
    return msgspec.msgpack.decode(payload, type=KVEventBatch)


class Subscriber:
    """A SUB socket, and DEALER sockets for replays."""

    def __init__(self, context: zmq.Context[Any], endpoint: str, topic: str = "") -> None:
        self._context = context
        self.socket = context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
        self.socket.setsockopt(zmq.RCVTIMEO, TIMEOUT_MS)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self.socket.connect(endpoint)

    def receive(self) -> Numbered:
        _, number, payload = self.socket.recv_multipart()
        return int.from_bytes(number, "big"), decode(payload)

    def replay(self, endpoint: str, first: int) -> list[Numbered]:
        """The batches from a number on that the publisher keeps."""
        dealer = self._context.socket(zmq.DEALER)  # a REQ socket takes only one answer
        dealer.setsockopt(zmq.RCVTIMEO, TIMEOUT_MS)
        dealer.connect(endpoint)
        dealer.send_multipart((b"", first.to_bytes(8, "big")))
        batches: list[Numbered] = []
        while True:
            _, _, number, payload = dealer.recv_multipart()
            if int.from_bytes(number, "big", signed=True) == END:
                dealer.close(linger=0)
                return batches
            batches.append((int.from_bytes(number, "big"), decode(payload)))


@contextmanager
def subscriber(endpoint: str, topic: str = "") -> Iterator[Subscriber]:
    context: zmq.Context[Any] = zmq.Context()
    try:
        yield Subscriber(context, endpoint, topic)
    finally:
        context.destroy(linger=0)


def wait_until(is_true: Any) -> None:
    deadline_s = time.monotonic() + TIMEOUT_MS / 1000
    while not is_true():
        assert time.monotonic() < deadline_s, "timed out"
        time.sleep(0.02)
