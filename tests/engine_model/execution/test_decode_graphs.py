"""The parts of CUDA graphs that need no CUDA: sizes, buffers, and when no graph fits."""

from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.execution.decode_graphs import DecodeBuffers, DecodeGraphs
from penstock_engine.execution.graph_sizes import (
    SIZES,
    WORKSPACE_BYTES,
    graph_bytes,
    padded_size,
    recorded_sizes,
)
from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.kernels.cuda_graph import Compute
from penstock_engine.layers.attention import StepAttention
from penstock_engine.layers.paged_attention import PagedAttention

BLOCK_SIZE, MAX_LEN = 4, 40


def decoding(start: int, first_block: int = 1, token_id: int = 7) -> ScheduledSequence:
    """A decode with a block more than its token needs."""
    blocks = tuple(range(first_block, first_block + start // BLOCK_SIZE + 2))
    sampling = SamplingParams(max_tokens=9)
    return ScheduledSequence("", start, (token_id,), blocks, True, sampling, (), 1)


@given(st.integers(1, SIZES[-1]))
def test_padding_is_little(num_rows: int) -> None:
    size = padded_size(num_rows)
    assert size in SIZES
    assert num_rows <= size <= max(num_rows + num_rows // 8, num_rows + 7)


def test_a_batch_beyond_all_sizes_is_not_padded() -> None:
    assert padded_size(SIZES[-1] + 1) is None


@pytest.mark.parametrize(
    ("max_num_seqs", "expected"), [(1, (1,)), (7, (1, 2, 4, 8)), (8, (1, 2, 4, 8)), (9999, SIZES)]
)
def test_sizes_end_with_that_of_the_largest_batch(
    max_num_seqs: int, expected: tuple[int, ...]
) -> None:
    assert recorded_sizes(max_num_seqs) == expected


def test_memory_is_counted_for_every_size() -> None:
    """The count equals the actual size of inputs and hidden states."""
    shape = {"max_model_len": MAX_LEN, "block_size": BLOCK_SIZE, "hidden_size": 8, "item_bytes": 2}
    counted = graph_bytes(max_num_seqs=7, attention_launches=[], activation_bytes=0, **shape)
    buffers = vars(DecodeBuffers(recorded_sizes(7)[-1], MAX_LEN, BLOCK_SIZE, "cpu")).values()
    inputs = sum(b.numel() * b.itemsize for b in buffers if isinstance(b, torch.Tensor))
    assert counted == inputs + (1 + 2 + 4 + 8) * 8 * 2 + WORKSPACE_BYTES
    more = graph_bytes(max_num_seqs=7, attention_launches=[6, 6, 9], activation_bytes=100, **shape)
    assert more - counted - 100 == 4 * (12 + 12 + 15) * 64 * 2**10


class RecordingModel:
    """A model that returns its token ids and positions, and keeps what it was given."""

    def __init__(self) -> None:
        self.num_passes = 0

    def __call__(
        self, token_ids: torch.Tensor, positions: torch.Tensor, attend: StepAttention
    ) -> torch.Tensor:
        assert isinstance(attend, PagedAttention)
        self.num_passes += 1
        self.batch, self.slots = attend.batch, attend.slots
        return torch.stack((token_ids, positions), 1)


class RunAgain:
    """Recorder that computes a step, and records nothing: a replay computes the step again.

    sizes: numbers of rows that were recorded. largest: those above it do not fit into memory.
    """

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self.sizes: list[int] = []

    def __call__(self, compute: Compute) -> Compute:
        self.sizes.append(len(compute()))
        if self.sizes[-1] > self.largest:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compute


def graphs(largest: int = 99) -> tuple[DecodeGraphs, RecordingModel, RunAgain]:
    """Graphs of up to 16 rows, recorded. largest: the most rows for which there is memory."""
    seen, recorder = RecordingModel(), RunAgain(largest)
    buffers = DecodeBuffers(16, MAX_LEN, BLOCK_SIZE, "cpu")
    made = DecodeGraphs(seen, buffers, recorded_sizes(16), recorder)
    made.record()
    return made, seen, recorder


@given(st.lists(st.lists(st.integers(0, MAX_LEN - 1), min_size=1, max_size=16), min_size=1))
@settings(deadline=None, max_examples=50)
def test_each_step_finds_its_own_rows_and_padding_behind_them(steps: list[list[int]]) -> None:
    """Buffers keep no rows of an earlier step with more sequences or more blocks."""
    runner, seen, recorder = graphs()
    recorded = [*recorder.sizes]
    for starts in steps:
        sequences = [
            decoding(start, first_block=3 * row + 1, token_id=row + 1)
            for row, start in enumerate(sorted(starts))
        ]
        hidden = runner.run(sequences)
        assert hidden is not None
        assert hidden.tolist() == [[s.token_ids[0], s.start] for s in sequences]
        size = padded_size(len(starts))
        assert size is not None
        lengths, slots = seen.batch.lengths.tolist(), seen.slots.tolist()
        assert lengths == [s.end for s in sequences] + [0] * (size - len(starts))
        for row, sequence in enumerate(sequences):
            used = -(-sequence.end // BLOCK_SIZE)
            table = seen.batch.block_tables[row, :used].tolist()
            assert tuple(table) == sequence.block_table[:used]
            assert slots[row] == table[-1] * BLOCK_SIZE + sequence.start % BLOCK_SIZE
        assert slots[len(starts) :] == [-1] * (size - len(starts))
        assert seen.batch.max_length == MAX_LEN
    assert recorder.sizes == recorded


def test_all_sizes_are_recorded_at_the_start_the_largest_first() -> None:
    """The padding that is recorded writes no keys and values, and attends to nothing."""
    _, seen, recorder = graphs()
    assert recorder.sizes == [16, 8, 4, 2, 1]
    assert seen.slots.tolist() == [-1]
    assert seen.batch.lengths.tolist() == [0]


def test_sizes_for_which_there_is_no_memory_are_launched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner, _, recorder = graphs(largest=4)
    assert recorder.sizes == [16, 8, 4, 2, 1]
    assert [m.args[0] for m in caplog.records if m.levelname == "WARNING" and m.args] == [16, 8]
    assert runner.run([decoding(3)] * 5) is None
    assert runner.run([decoding(3)] * 4) is not None


def test_inputs_of_a_size_stay_where_they_are() -> None:
    """A graph reads the addresses with which it was recorded."""
    runner, seen, _ = graphs()
    addresses = []
    for num_rows in (3, 16, 4):
        assert runner.run([decoding(row) for row in range(num_rows)]) is not None
        tensors = (seen.slots, seen.batch.lengths, seen.batch.block_tables)
        addresses.append([tensor.data_ptr() for tensor in tensors])
    assert addresses[0] == addresses[2]


@pytest.mark.parametrize(
    "other",
    [
        decoding(5)._replace(token_ids=(1, 2)),
        decoding(5)._replace(adapter="a"),
    ],
    ids=["chunk", "adapter"],
)
def test_other_steps_are_not_replayed(other: ScheduledSequence) -> None:
    runner, seen, _ = graphs()
    num_passes = seen.num_passes
    assert runner.run([decoding(3), other]) is None
    assert runner.run([decoding(3)] * 17) is None
    assert seen.num_passes == num_passes


def test_steps_are_launched_ahead_on_a_device_unless_told_otherwise(
    qwen3_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunnerConfig(
        model_dir=qwen3_dir, device="cpu", dtype="float32", num_blocks=16, block_size=BLOCK_SIZE,
        max_num_seqs=2, max_num_batched_tokens=8, max_model_len=MAX_LEN,
    )  # fmt: skip
    assert Runner.load(config).depth == 1
    monkeypatch.setattr(PagedModel, "device", "cuda", raising=False)
    assert Runner(PagedModel.__new__(PagedModel)).depth == 2
    assert Runner(PagedModel.__new__(PagedModel), is_ahead=False).depth == 1
