"""Tests of the sampler's memory: no step takes more than is counted."""

import pytest
from tests.support.engine.measured_bytes import measured_bytes

from penstock_engine.sampling.sampling_sizes import sampling_bytes


def test_drawing_grows_with_vocabulary_and_drafts() -> None:
    sizes = {"max_num_seqs": 64, "item_bytes": 4, "device": "cpu"}
    small = sampling_bytes(vocab_size=8192, rows_per_sequence=1, **sizes)
    large = sampling_bytes(vocab_size=150_000, rows_per_sequence=1, **sizes)
    drafted = sampling_bytes(vocab_size=150_000, rows_per_sequence=5, **sizes)
    assert large > small + 64 * 140_000 * 4
    assert drafted == large + 4 * 64 * 150_000 * 4


@pytest.mark.parametrize(("device", "num_bytes"), [("cpu", 160), ("cuda", 24)])
def test_reported_log_probabilities_are_counted(device: str, num_bytes: int) -> None:
    sizes = {"max_num_seqs": 64, "rows_per_sequence": 2, "vocab_size": 8192, "item_bytes": 4}
    none = sampling_bytes(**sizes, device=device)
    reported = sampling_bytes(**sizes, device=device, max_logprobs=8192, max_num_batched_tokens=512)
    assert reported - none == (128 + 512) * 8192 * num_bytes


DRAW = """
import torch, benchmarks.engine.sampling_cost as cost
settings, length = cost.mixes(152_000)["all of these"]
sequences = cost.sequences_of(settings, 12, 4, length, 152_000)
print(cost.measure(sequences, 152_000, torch.float32, 1)[1])
"""


def test_drawing_takes_no_more_than_is_counted() -> None:
    """The estimate holds with all sampling parameters, 20 log-probabilities and 4 drafts."""
    counted = sampling_bytes(
        max_num_seqs=12, rows_per_sequence=5, vocab_size=152_000, item_bytes=4, device="cpu"
    )
    assert counted / 3 < measured_bytes(DRAW) < counted


REPORT_LOGPROBS = """
import torch, benchmarks.engine.sampling_cost as cost
sequences = cost.sequences_of([{"logprobs": 152_000}], 12, 0, 100, 152_000)
print(cost.measure(sequences, 152_000, torch.float32, 1)[1])
"""


def test_all_reported_log_probabilities_fit_the_estimate() -> None:
    counted = sampling_bytes(
        max_num_seqs=12, rows_per_sequence=1, vocab_size=152_000, item_bytes=4, device="cpu",
        max_logprobs=152_000,
    )  # fmt: skip
    assert counted / 3 < measured_bytes(REPORT_LOGPROBS) < counted
