"""Messages between rank 0 and its workers, and their encoding.

    rank 0 -> worker    RankConfig, once; then AddAdapter, RemoveAdapter, CopyBlocks, Forward and
                        Logits, in the order in which rank 0 does the same itself. An adapter's
                        AddFactors precede its AddAdapter, one message for each projection
    worker -> rank 0    Report: joining, then ready or failed; nothing afterwards

Encoding: one byte for the type, four for the length, then the payload. It is JSON, from which
pydantic restores a RankConfig by the types of its fields; for messages of every step, 32-bit integers in
the machine's byte order; for tensors, safetensors. Either side ends the connection by closing the socket.
"""

import itertools
import json
import socket
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from safetensors import SafetensorError
from safetensors.torch import load, save

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import BlockCopies, ScheduledSequence
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.lora.checkpoint import Factors
from penstock_engine.telemetry.logs import LogFormat, LogLevel

if TYPE_CHECKING:
    from pydantic import TypeAdapter

HEADER = struct.Struct("=cI")
# Bound on a message's size: a hundred times the message of a step with a million tokens, and thirty
# times the factors of the largest projection of a 70B model at rank 512 (28672 + 8192 inputs and outputs
# of 16 bits).
MAX_MESSAGE_BYTES = 1 << 30
# Sampling parameters in decoded messages, where they are unused: only rank 0 samples.
UNSAMPLED = SamplingParams(max_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankConfig:
    """Configuration of one rank.

    num_threads: for computation on the CPU. store_port: port of the rendezvous store on the loopback
    address; 0: not known yet. log_format, log_level: as of rank 0.
    """

    rank: int
    config: RunnerConfig
    num_threads: int
    store_port: int = 0
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"


@cache
def _rank_config_adapter() -> "TypeAdapter[RankConfig]":
    """The converter of a RankConfig. An engine of one rank runs without pydantic."""
    from pydantic import TypeAdapter

    return TypeAdapter(RankConfig)


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's state during start-up. reason, message: those of the ModelError if it failed."""

    state: Literal["joining", "ready", "failed"]
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class AddFactors:
    """LoRA factors of one projection, for the adapter that the next AddAdapter names."""

    target: str
    factors: Factors


@dataclass(frozen=True, slots=True)
class AddAdapter:
    """Add the adapter whose factors have been sent since the last AddAdapter."""

    name: str
    rank: int


@dataclass(frozen=True, slots=True)
class RemoveAdapter:
    """Remove the adapter of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class CopyBlocks:
    """Copy whole KV blocks before the next forward pass."""

    copies: BlockCopies


@dataclass(frozen=True, slots=True)
class Forward:
    """Run the forward pass of a step.

    Only the fields that a model needs are sent: start, token ids, block table and adapter.
    """

    sequences: Sequence[ScheduledSequence]


@dataclass(frozen=True, slots=True)
class Logits:
    """Compute logits of num_rows hidden states, which rank 0 broadcasts next."""

    num_rows: int


Message = (
    RankConfig | Report | AddFactors | AddAdapter | RemoveAdapter | CopyBlocks | Forward | Logits
)


class Channel:
    """Sends and receives messages on one end of a socket between rank 0 and a worker."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(self, message: Message) -> None:
        """Send a message. Raises OSError if the other side has closed the socket."""
        self.socket.sendall(encode(message))

    def receive(self) -> Message:
        """Wait for a message. Raises EOFError if the other side has closed the socket, and ValueError
        if the data is not a message."""
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
    """Encode a message with its header.

    Raises ValueError if it exceeds MAX_MESSAGE_BYTES, or if a field of a RankConfig is not of its type.
    """
    match message:
        case RankConfig():
            kind, payload = b"P", _rank_config_adapter().dump_json(message, warnings="error")
        case Report():
            kind, payload = b"R", json.dumps(asdict(message)).encode()
        case AddFactors(target, factors):
            kind, payload = b"T", _pack_factors(target, factors)
        case AddAdapter(name, rank):
            kind, payload = b"A", _pack_json([name, rank])
        case RemoveAdapter(name):
            kind, payload = b"D", name.encode()
        case CopyBlocks(copies):
            kind, payload = b"M", _pack_block_copies(copies)
        case Forward(sequences):
            kind, payload = b"F", _pack_chunks(sequences)
        case Logits(num_rows):
            kind, payload = b"L", struct.pack("=I", num_rows)
    if len(payload) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {len(payload)} bytes")
    return HEADER.pack(kind, len(payload)) + payload


def decode(kind: bytes, payload: bytes) -> Message:
    """Decode a message from its type byte and payload. Raises ValueError."""
    try:
        match kind:
            case b"P":
                return _rank_config_adapter().validate_json(payload)
            case b"R":
                return Report(**json.loads(payload))
            case b"F":
                return Forward(tuple(_unpack_chunks(payload)))
            case b"T":
                return _unpack_factors(payload)
            case b"A":
                return AddAdapter(*_unpack_json(payload)[0])
            case b"D":
                return RemoveAdapter(payload.decode())
            case b"M":
                return CopyBlocks(_unpack_block_copies(payload))
            case b"L":
                return Logits(*struct.unpack("=I", payload))
            case _:
                raise ValueError(f"there is no message of type {kind!r}")
    except (TypeError, LookupError, struct.error, SafetensorError) as error:
        raise ValueError(f"a message of type {kind!r} cannot be read") from error


def _pack_factors(target: str, factors: Factors) -> bytes:
    return _pack_json([target]) + save({"a": factors.a, "b": factors.b})


def _unpack_factors(payload: bytes) -> AddFactors:
    (target,), rest = _unpack_json(payload)
    tensors = load(rest)
    return AddFactors(target, Factors(tensors["a"], tensors["b"]))


def _pack_chunks(sequences: Sequence[ScheduledSequence]) -> bytes:
    """Encode the adapters' names, then for each chunk its start, the index of its adapter, its numbers
    of tokens and blocks, the token ids and the block table."""
    adapters = list(dict.fromkeys(sequence.adapter for sequence in sequences))
    numbers = array("i")
    for sequence in sequences:
        adapter = adapters.index(sequence.adapter)
        lengths = (len(sequence.token_ids), len(sequence.block_table))
        numbers.extend((sequence.start, adapter, *lengths))
        numbers.extend(sequence.token_ids)
        numbers.extend(sequence.block_table)
    return _pack_json(adapters) + numbers.tobytes()


def _unpack_chunks(payload: bytes) -> Iterator[ScheduledSequence]:
    adapters, rest = _unpack_json(payload)
    numbers = _numbers(rest)
    place = 0
    while place < len(numbers):
        start, adapter, num_tokens, num_blocks = numbers[place : place + 4]
        tokens = place + 4
        blocks = tokens + num_tokens
        place = blocks + num_blocks
        if not tokens < blocks <= place <= len(numbers):
            raise ValueError("a chunk is longer than its message")
        yield ScheduledSequence(
            "", start, tuple(numbers[tokens:blocks]), tuple(numbers[blocks:place]), False,
            UNSAMPLED, (), 0, adapter=adapters[adapter],
        )  # fmt: skip


def _pack_block_copies(copies: BlockCopies) -> bytes:
    """Encode the numbers of saves and restores, then all pairs of blocks."""
    pairs = (*copies.saves, *copies.restores, *copies.forks)
    head = (len(copies.saves), len(copies.restores))
    return array("i", (*head, *itertools.chain.from_iterable(pairs))).tobytes()


def _unpack_block_copies(payload: bytes) -> BlockCopies:
    num_saves, num_restores, *numbers = _numbers(payload)
    pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    first_fork = num_saves + num_restores
    return BlockCopies(pairs[:num_saves], pairs[num_saves:first_fork], pairs[first_fork:])


def _numbers(payload: bytes) -> "array[int]":  # quoted, because array is not generic in Python 3.11
    numbers = array("i")
    numbers.frombytes(payload)
    return numbers


def _pack_json(value: list[Any]) -> bytes:
    text = json.dumps(value).encode()
    return struct.pack("=I", len(text)) + text


def _unpack_json(payload: bytes) -> tuple[list[Any], bytes]:
    """Decode a JSON value. Returns it and the rest of the payload."""
    (length,) = struct.unpack_from("=I", payload)
    value = json.loads(payload[4 : 4 + length])
    return value, payload[4 + length :]
