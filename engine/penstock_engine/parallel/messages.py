"""Messages between rank 0 and its workers, and their encoding.

    rank 0 -> worker    Part, once; then AddAdapter, RemoveAdapter, Move, Forward and Logits, in the
                        order in which rank 0 does the same itself. An adapter's AddFactors precede
                        its AddAdapter, one message for each product
    worker -> rank 0    Report: joining, then ready or failed; nothing afterwards

On the wire: one byte for the type, four for the length, then JSON; for what is sent in every step,
32-bit numbers in the machine's order; for tensors, safetensors. A closed socket is the end, for both
sides.
"""

import itertools
import json
import socket
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError
from safetensors.torch import load, save

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import BlockCopies, ScheduledSequence
from penstock_engine.lora.checkpoint import Factors
from penstock_engine.models.shard import Layout
from penstock_engine.runner_config import RunnerConfig

HEADER = struct.Struct("=cI")
# Bound on what a receiver reads: a hundred times the message of a step with a million tokens, and
# thirty times the factors of the largest product of a 70B model at rank 512 (28672 + 8192 inputs and
# outputs of 16 bits).
MAX_MESSAGE_BYTES = 1 << 30
# Only rank 0 samples.
UNSAMPLED = SamplingParams(max_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a rank is to compute. store_port: on the loopback address, where the ranks meet; 0: is
    not known yet."""

    rank: int
    config: RunnerConfig
    num_threads: int
    store_port: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """reason, message: of a failure, as ModelError has them."""

    state: Literal["joining", "ready", "failed"]
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class AddFactors:
    """The factors of one product of the adapter that the next AddAdapter names."""

    target: str
    factors: Factors


@dataclass(frozen=True, slots=True)
class AddAdapter:
    """Add the adapter whose factors have been sent since the last AddAdapter."""

    name: str
    rank: int


@dataclass(frozen=True, slots=True)
class RemoveAdapter:
    name: str


@dataclass(frozen=True, slots=True)
class Move:
    moves: BlockCopies


@dataclass(frozen=True, slots=True)
class Forward:
    """Arrives with what a model needs of its sequences: start, tokens, blocks, adapter."""

    sequences: Sequence[ScheduledSequence]


@dataclass(frozen=True, slots=True)
class Logits:
    """Of num_rows hidden states, which rank 0 broadcasts next."""

    num_rows: int


Message = Part | Report | AddFactors | AddAdapter | RemoveAdapter | Move | Forward | Logits


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
    """The message in the wire format. Raises ValueError if it exceeds MAX_MESSAGE_BYTES."""
    match message:
        case Part():
            kind, payload = b"P", json.dumps(asdict(message), default=str).encode()
        case Report():
            kind, payload = b"R", json.dumps(asdict(message)).encode()
        case AddFactors(target, factors):
            kind, payload = b"T", _pack_factors(target, factors)
        case AddAdapter(name, rank):
            kind, payload = b"A", _pack_json([name, rank])
        case RemoveAdapter(name):
            kind, payload = b"D", name.encode()
        case Move(moves):
            kind, payload = b"M", _pack_block_copies(moves)
        case Forward(sequences):
            kind, payload = b"F", _pack_chunks(sequences)
        case Logits(num_rows):
            kind, payload = b"L", struct.pack("=I", num_rows)
    if len(payload) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {len(payload)} bytes")
    return HEADER.pack(kind, len(payload)) + payload


def decode(kind: bytes, payload: bytes) -> Message:
    """Raises ValueError."""
    try:
        match kind:
            case b"P":
                return _unpack_part(payload)
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
                return Move(_unpack_block_copies(payload))
            case b"L":
                return Logits(*struct.unpack("=I", payload))
            case _:
                raise ValueError(f"there is no message of type {kind!r}")
    except (TypeError, LookupError, struct.error, SafetensorError) as error:
        raise ValueError(f"a message of type {kind!r} cannot be read") from error


def _unpack_part(payload: bytes) -> Part:
    fields = json.loads(payload)
    config = fields["config"]
    config["layout"] = Layout(**config["layout"])
    for name in ("model_dir", "draft_model_dir"):
        config[name] = None if config[name] is None else Path(config[name])
    return Part(**{**fields, "config": RunnerConfig(**config)})


def _pack_factors(target: str, factors: Factors) -> bytes:
    return _pack_json([target]) + save({"a": factors.a, "b": factors.b})


def _unpack_factors(payload: bytes) -> AddFactors:
    (target,), rest = _unpack_json(payload)
    tensors = load(rest)
    return AddFactors(target, Factors(tensors["a"], tensors["b"]))


def _pack_chunks(sequences: Sequence[ScheduledSequence]) -> bytes:
    """The adapters' names; of each chunk: start, numbers of adapter, tokens and blocks; these."""
    adapters = list(dict.fromkeys(sequence.adapter for sequence in sequences))
    numbers = array("i")
    for sequence in sequences:
        place = adapters.index(sequence.adapter)
        lengths = (len(sequence.token_ids), len(sequence.block_table))
        numbers.extend((sequence.start, place, *lengths))
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


def _pack_block_copies(moves: BlockCopies) -> bytes:
    """Numbers of saves and restores; then all pairs."""
    pairs = (*moves.saves, *moves.restores, *moves.forks)
    head = (len(moves.saves), len(moves.restores))
    return array("i", (*head, *itertools.chain.from_iterable(pairs))).tobytes()


def _unpack_block_copies(payload: bytes) -> BlockCopies:
    num_saves, num_restores, *numbers = _numbers(payload)
    pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    num_kept = num_saves + num_restores
    return BlockCopies(pairs[:num_saves], pairs[num_saves:num_kept], pairs[num_kept:])


def _numbers(payload: bytes) -> "array[int]":  # not at run time: Python 3.11
    numbers = array("i")
    numbers.frombytes(payload)
    return numbers


def _pack_json(value: list[Any]) -> bytes:
    text = json.dumps(value).encode()
    return struct.pack("=I", len(text)) + text


def _unpack_json(payload: bytes) -> tuple[list[Any], bytes]:
    """The value, and what follows it."""
    (length,) = struct.unpack_from("=I", payload)
    value = json.loads(payload[4 : 4 + length])
    return value, payload[4 + length :]
