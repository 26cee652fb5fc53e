"""Tests of messages between ranks: round trips, limits, and malformed bytes."""

import socket
import struct
from dataclasses import MISSING, fields, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import BlockCopies, ScheduledSequence
from penstock_engine.execution.parallel.messages import (
    MAX_MESSAGE_BYTES,
    AddAdapter,
    AddFactors,
    Channel,
    CopyBlocks,
    Forward,
    Logits,
    Message,
    RankConfig,
    RemoveAdapter,
    Report,
    decode,
    encode,
)  # fmt: skip
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.lora.checkpoint import Factors
from penstock_engine.models.shard import Layout

PART = RankConfig(
    rank=1,
    config=RunnerConfig(
        model_dir=Path("/models/ä"), device="cpu", dtype="float32", num_blocks=7, block_size=16,
        max_num_seqs=2, max_num_batched_tokens=5, max_model_len=99, quantization="int8",
        kv_dtype="int8", num_host_blocks=2, max_adapters=1, max_lora_rank=32,
        draft_model_dir=Path("/drafts/ü"), draft_method="eagle", layout=Layout(2, 3, True),
        async_scheduling=False, enforce_eager=True,
    ),
    num_threads=1,
    store_port=4711,
    log_format="json",
    log_level="debug",
)  # fmt: skip

numbers = st.integers(0, 2**31 - 1)
pairs = st.lists(st.tuples(numbers, numbers), max_size=5).map(tuple)
sequences = st.builds(
    lambda start, tokens, blocks, adapter: ScheduledSequence(
        "private", start, tuple(tokens), tuple(blocks), True, SamplingParams(max_tokens=9),
        [1, 2, 3], 3, adapter=adapter,
    ),
    numbers, st.lists(numbers, min_size=1, max_size=9), st.lists(numbers, max_size=9),
    st.sampled_from(["", "a", "ü"]),
)  # fmt: skip


def send_and_receive(message: Message) -> Message:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours).send(message)
        return Channel(theirs).receive()


@given(st.lists(sequences, max_size=6))
def test_a_pass_arrives_with_what_a_model_reads_and_no_more(given: list[ScheduledSequence]) -> None:
    arrived = send_and_receive(Forward(given))
    assert isinstance(arrived, Forward)
    assert [(s.start, s.token_ids, s.block_table, s.adapter) for s in arrived.sequences] == [
        (s.start, s.token_ids, s.block_table, s.adapter) for s in given
    ]
    assert b"private" not in encode(Forward(given))


@given(pairs, pairs, pairs)
def test_moves_arrive_as_they_were(saves: object, restores: object, forks: object) -> None:
    moves = BlockCopies(saves, restores, forks)  # type: ignore[arg-type]
    assert send_and_receive(CopyBlocks(moves)) == CopyBlocks(moves)


def test_factors_arrive_as_they_were() -> None:
    pair = Factors(torch.rand(2, 3), torch.rand(5, 2).to(torch.bfloat16))
    arrived = send_and_receive(AddFactors("x.ü", pair))
    assert isinstance(arrived, AddFactors)
    assert arrived.target == "x.ü"
    assert torch.equal(arrived.factors.a, pair.a)
    assert torch.equal(arrived.factors.b, pair.b)


@pytest.mark.parametrize(
    "message",
    [PART, Report("failed", "BadWeights", "ü"), Logits(64), AddAdapter("ü", 2), RemoveAdapter("ü")],
)
def test_others_arrive_as_they_were(message: Message) -> None:
    assert send_and_receive(message) == message


@pytest.mark.parametrize("record", [PART, PART.config], ids=["rank", "runner"])
def test_the_configuration_above_sets_every_field(record: RankConfig | RunnerConfig) -> None:
    for field in fields(record):
        assert field.default is MISSING or getattr(record, field.name) != field.default, field.name


def test_a_field_that_is_not_of_its_type_is_not_sent() -> None:
    config = replace(PART.config, num_blocks=Path("7"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_blocks"):
        encode(replace(PART, config=config))


@given(
    st.sampled_from([b"P", b"R", b"T", b"A", b"D", b"M", b"F", b"L", b"?"]),
    st.binary(max_size=64) | st.sampled_from([b"{}", b"[]", b'{"layout": 5}', b'{"state": "x"}']),
)
def test_what_is_no_message_is_a_value_error_or_reads_as_itself(
    kind: bytes, payload: bytes
) -> None:
    try:
        message = decode(kind, payload)
    except ValueError:
        return
    assert decode(kind, encode(message)[5:]) == message


def test_a_message_that_is_too_long_is_not_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(struct.pack("=cI", b"F", MAX_MESSAGE_BYTES + 1))
        with pytest.raises(ValueError, match="a message of"):
            Channel(theirs).receive()


def test_a_message_that_is_too_long_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_engine.execution.parallel.messages.MAX_MESSAGE_BYTES", 3)
    encode(RemoveAdapter("abc"))
    with pytest.raises(ValueError, match="a message of 4 bytes"):
        encode(RemoveAdapter("abcd"))


@pytest.mark.parametrize("sent", [b"", b"F", encode(Logits(3))[:-1]])
def test_an_end_in_the_middle_is_an_end(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(sent)
        ours.close()
        with pytest.raises(EOFError):
            Channel(theirs).receive()
