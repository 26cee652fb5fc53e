"""Gumbel-max sampling by the Triton kernels, run by the interpreter on a CPU."""

from pathlib import Path

import pytest
import torch
from tests.support.engine.interpreted_tests import passes_interpreted

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.sampling.kernel_sampling import _signed, make_penalties
from penstock_engine.sampling.request_state import RequestState
from penstock_engine.sampling.row import Row, rows_of

RACE_TESTS = Path(__file__).parents[1] / "engine_model" / "kernels" / "test_kernel_sampling.py"


@pytest.mark.timeout(300)
def test_the_kernel_tests_pass_under_the_interpreter() -> None:
    passes_interpreted(str(RACE_TESTS))


def row(vocab_size: int, *, output: list[int], **parameters: float) -> Row:
    """Returns the row that follows the prompt 1, 2 and the output."""
    history = [1, 2, *output]
    sampling = SamplingParams(max_tokens=9, **parameters)  # type: ignore[arg-type]
    sequence = ScheduledSequence("a", len(history) - 1, (0,), (), True, sampling, history, 2)
    return next(rows_of(sequence, RequestState(sequence, vocab_size, "cpu")))


def test_penalties_of_a_batch_have_slots_for_rows_with_penalties() -> None:
    """Counts exist only for these rows, in their order. Factors exist for all rows."""
    rows = [
        row(5, output=[4, 4]),
        row(5, output=[2, 4, 4, 9], repetition_penalty=1.5),
        row(5, output=[0], temperature=0.5),
        row(5, output=[], presence_penalty=0.5),
        row(5, output=[3, 3, 3], frequency_penalty=-0.25),
    ]
    penalties = make_penalties(rows, 5, torch.device("cpu"))
    assert penalties is not None
    assert penalties.slots.tolist() == [-1, 0, -1, 1, 2]
    assert penalties.counts.tolist() == [[0, 0, 1, 0, 2], [0] * 5, [0, 0, 0, 3, 0]]
    assert penalties.is_in_prompt.int().tolist() == [
        [0, 1, 1, 0, 1], [0, 1, 1, 0, 0], [0, 1, 1, 1, 0],
    ]  # fmt: skip
    assert penalties.repetition.tolist() == [1, 1.5, 1, 1, 1]
    assert penalties.presence.tolist() == [0, 0, 0, 0.5, 0]
    assert penalties.frequency.tolist() == [0, 0, 0, 0, -0.25]
    assert penalties.counts.dtype == torch.int32
    assert make_penalties(rows[:1], 5, torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("seed", "signed"),
    [
        (0, 0), (7, 7), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 - 1, -1),
        (2**64, 0), (2**64 + 5, 5), (-1, -1), (-(2**63), -(2**63)),
    ],
)  # fmt: skip
def test_a_seed_of_any_size_has_the_bits_of_an_int64(seed: int, signed: int) -> None:
    assert _signed(seed) == signed
