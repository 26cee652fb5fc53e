"""What rank 0 and its workers tell each other, each message a type of its own.

    rank 0 -> worker    Part, once, then Forward and Logits in the order in which it computes them
    worker -> rank 0    Report: joining, then ready or failed; nothing afterwards

On the wire: one byte for the type, four for the length, then JSON, or, for what is sent in every
step, 32-bit numbers in the machine's order. A closed socket is the end, for both sides.
"""

import json
import socket
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from penstock_engine.models.shard import Layout
from penstock_engine.paged_model import Chunk

HEADER = struct.Struct("=cI")
# A hundred times what a step has to say of a million tokens.
MAX_MESSAGE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a rank is to compute. store_port: on the loopback address, where the ranks meet; 0: is
    not known yet."""

    rank: int
    layout: Layout
    model_dir: str
    device: str
    dtype: str
    num_blocks: int
    block_size: int
    max_num_tokens: int
    max_model_len: int
    num_threads: int
    store_port: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """reason, message: of a failure, as ModelError has them."""

    state: Literal["joining", "ready", "failed"]
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """The part of a ScheduledSequence that the model itself needs."""

    start: int
    token_ids: tuple[int, ...]
    block_table: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Forward:
    chunks: Sequence[Chunk]


@dataclass(frozen=True, slots=True)
class Logits:
    """Of num_rows hidden states, which rank 0 broadcasts next."""

    num_rows: int


Message = Part | Report | Forward | Logits


class Channel:
    """One end of a socket between rank 0 and a worker."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(self, message: Message) -> None:
        """Raises OSError when the other side has gone."""
        self.socket.sendall(encode(message))

    def receive(self) -> Message:
        """Raises EOFError when the other side has gone, ValueError for anything but a message."""
        kind, num_bytes = HEADER.unpack(self._read(HEADER.size))
        if num_bytes > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {num_bytes} bytes")
        return decode(kind, self._read(num_bytes))

    def _read(self, num_bytes: int) -> bytes:
        data = bytearray(num_bytes)
        view = memoryview(data)
        while view:
            num_read = self.socket.recv_into(view)
            if not num_read:
                raise EOFError
            view = view[num_read:]
        return bytes(data)


def encode(message: Message) -> bytes:
    match message:
        case Part():
            kind, payload = b"P", json.dumps(asdict(message)).encode()
        case Report():
            kind, payload = b"R", json.dumps(asdict(message)).encode()
        case Forward(chunks):
            kind, payload = b"F", _pack(chunks)
        case Logits(num_rows):
            kind, payload = b"L", struct.pack("=I", num_rows)
    return HEADER.pack(kind, len(payload)) + payload


def decode(kind: bytes, payload: bytes) -> Message:
    """Raises ValueError."""
    try:
        match kind:
            case b"P":
                fields = json.loads(payload)
                return Part(**{**fields, "layout": Layout(**fields["layout"])})
            case b"R":
                return Report(**json.loads(payload))
            case b"F":
                return Forward(tuple(_unpack(payload)))
            case b"L":
                return Logits(*struct.unpack("=I", payload))
            case _:
                raise ValueError(f"there is no message of type {kind!r}")
    except (TypeError, KeyError, struct.error) as error:
        raise ValueError(f"a message of type {kind!r} cannot be read") from error


def _pack(chunks: Sequence[Chunk]) -> bytes:
    """Of each: start, number of tokens, number of blocks, tokens, blocks."""
    numbers = array("i")
    for chunk in chunks:
        numbers.extend((chunk.start, len(chunk.token_ids), len(chunk.block_table)))
        numbers.extend(chunk.token_ids)
        numbers.extend(chunk.block_table)
    return numbers.tobytes()


def _unpack(payload: bytes) -> Iterator[TokenChunk]:
    numbers = array("i")
    numbers.frombytes(payload)
    place = 0
    while place < len(numbers):
        start, num_tokens, num_blocks = numbers[place : place + 3]
        tokens = place + 3
        blocks = tokens + num_tokens
        place = blocks + num_blocks
        if not tokens < blocks <= place <= len(numbers):
            raise ValueError("a chunk is longer than its message")
        yield TokenChunk(start, tuple(numbers[tokens:blocks]), tuple(numbers[blocks:place]))
