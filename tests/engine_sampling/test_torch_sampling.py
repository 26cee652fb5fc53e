"""Sampling on a CPU: the probability of each token, and the token that a random number selects."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from penstock_engine.core.noise import uniform
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.sampling import torch_sampling
from penstock_engine.sampling.request_state import RequestState
from penstock_engine.sampling.row import Row, rows_of
from penstock_engine.sampling.torch_sampling import (
    MAX_TOPK_CANDIDATES,
    NO_TOKEN,
    keep_top,
    keep_top_in_order,
    keep_top_of_row,
    probabilities,
    sample_with_torch,
)

LOGITS = [math.log(weight) for weight in (0.4, 0.3, 0.2, 0.1)]


def params(**parameters: float) -> SamplingParams:
    return SamplingParams(max_tokens=9, **parameters)  # type: ignore[arg-type]


def make_row(num_output: int = 0, **parameters: float) -> Row:
    history = [0] * (1 + num_output)
    sequence = ScheduledSequence("a", num_output, (0,), (), True, params(**parameters), history, 1)
    return next(rows_of(sequence, RequestState(sequence, len(LOGITS), "cpu")))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, (0.4, 0.3, 0.2, 0.1)),
        ({"temperature": 0.5}, (16 / 30, 9 / 30, 4 / 30, 1 / 30)),
        ({"min_p": 0.4}, (4 / 9, 3 / 9, 2 / 9, 0)),
        ({"min_p": 0.6}, (4 / 7, 3 / 7, 0, 0)),
        ({"min_p": 1.0}, (1, 0, 0, 0)),
        ({"min_p": 0.3, "temperature": 0.5}, (16 / 25, 9 / 25, 0, 0)),  # temperature comes first
        ({"top_k": 3}, (4 / 9, 3 / 9, 2 / 9, 0)),
        ({"top_k": 4}, (0.4, 0.3, 0.2, 0.1)),
        ({"top_k": 5}, (0.4, 0.3, 0.2, 0.1)),
        ({"top_p": 0.39}, (1, 0, 0, 0)),
        ({"top_p": 0.41}, (4 / 7, 3 / 7, 0, 0)),
        ({"top_p": 0.71}, (4 / 9, 3 / 9, 2 / 9, 0)),
        ({"top_p": 0.91}, (0.4, 0.3, 0.2, 0.1)),
        ({"top_k": 3, "top_p": 0.75}, (4 / 7, 3 / 7, 0, 0)),  # 7 of 9 are enough
        ({"top_k": 2, "min_p": 0.4}, (4 / 7, 3 / 7, 0, 0)),
    ],
    ids=str,
)
def test_probabilities_follow_the_parameters_of_each_row(
    parameters: dict[str, float], expected: Sequence[float]
) -> None:
    """Probabilities do not depend on the parameters of other rows."""
    batch = [params(), params(**parameters), params(temperature=2.0), params(**parameters)]
    actual = probabilities(torch.tensor([LOGITS] * 4), batch)
    assert actual[1].tolist() == pytest.approx(list(expected), abs=1e-6)
    assert actual[3].tolist() == actual[1].tolist()
    assert actual[0].tolist() == pytest.approx([0.4, 0.3, 0.2, 0.1])
    roots = [math.sqrt(probability) for probability in (0.4, 0.3, 0.2, 0.1)]
    assert actual[2].tolist() == pytest.approx([root / sum(roots) for root in roots])


@pytest.mark.parametrize("num_output", range(12))
def test_sampling_is_by_inverse_transform(num_output: int) -> None:
    """The random number is that of seed and position; tokens are in the vocabulary's order."""
    rows = [make_row(num_output, seed=seed) for seed in range(20)]
    expected = [
        int(np.searchsorted(np.cumsum([0.4, 0.3, 0.2, 0.1]), uniform(seed, 1 + num_output)))
        for seed in range(20)
    ]
    assert sample_with_torch(torch.tensor([LOGITS] * 20), rows, None).tolist() == expected


def test_a_token_of_probability_0_is_never_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules hold for the first token and for one between others, even if the number is 0."""
    logits = torch.tensor([[-torch.inf, 1.0, -torch.inf, 1.0]])
    for number, token in ((0.0, 1), (0.25, 1), (0.5, 3), (0.99, 3)):
        monkeypatch.setattr(torch_sampling, "uniform", lambda seed, position, number=number: number)
        assert sample_with_torch(logits.clone(), [make_row()], None).tolist() == [token]


def test_greedy_rows_and_sampled_rows_share_a_batch() -> None:
    logits = torch.tensor([LOGITS, LOGITS[::-1], LOGITS, LOGITS[::-1]])
    rows = [
        make_row(temperature=0.0), make_row(temperature=0.0, top_k=2, seed=5), make_row(seed=3),
        make_row(temperature=1e-6),
    ]  # fmt: skip
    [sampled] = sample_with_torch(logits[2:3].clone(), rows[2:3], None).tolist()
    assert sample_with_torch(logits, rows, None).tolist() == [0, 3, sampled, 3]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_without_possible_tokens_samples_none(temperature: float) -> None:
    logits = torch.tensor([[-torch.inf] * 4, LOGITS, [torch.nan] * 4])
    tokens = sample_with_torch(logits, [make_row(temperature=temperature)] * 3, None).tolist()
    assert (tokens[0], tokens[2]) == (NO_TOKEN, NO_TOKEN)
    assert 0 <= tokens[1] < 4


def test_small_probabilities_of_a_large_vocabulary_count() -> None:
    """A sum of so many in single precision would lose them."""
    logits = torch.zeros(1, 2_000_000)
    logits[0, -1] = math.log(2_000_000.0)  # as much as all others together
    rows = [make_row(seed=seed) for seed in range(24)]
    tokens = [sample_with_torch(logits.clone(), [row], None).item() for row in rows]
    assert [token == 1_999_999 for token in tokens] == [uniform(s, 1) > 0.5 for s in range(24)]


@pytest.mark.parametrize(
    ("parameters", "kept"),
    [
        ({"top_k": 1}, [3]),
        ({"top_k": 2}, [0, 3]),
        ({"top_k": 3}, [0, 2, 3]),
        ({"top_k": 4}, [0, 1, 2, 3]),
        ({"top_k": 9}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.01}, [3]),
        ({"top_p": 0.5, "top_k": 5}, [3]),
        ({"top_p": 0.85}, [0, 2, 3]),
    ],
    ids=str,
)
@pytest.mark.parametrize("keep", [keep_top_of_row, keep_top, keep_top_in_order])
def test_of_equally_probable_tokens_the_lowest_ids_are_kept(
    keep: object, parameters: dict[str, float], kept: list[int]
) -> None:
    """The weights of the tokens are 3, 1, 3, 10 and 1."""
    logits = torch.tensor([[3.0, 1.0, 3.0, 10.0, 1.0]]).log()
    before, row_params = logits.clone(), params(**parameters)
    if keep is keep_top_of_row:
        keep_top_of_row(logits[0].numpy(), row_params)
    elif keep is keep_top:
        keep_top(logits, [row_params])
    else:
        keep_top_in_order(logits, [0], [row_params])
    actual = logits[0].isfinite().nonzero()[:, 0].tolist()
    assert len(actual) == len(kept)
    assert keep is keep_top_in_order or actual == kept
    assert logits[0, actual].tolist() == before[0, actual].tolist()


def test_rows_with_a_small_top_k_are_sorted_separately_on_a_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding few best tokens takes a tenth of a full sort. Rows without limits are not sorted."""
    groups: list[list[int]] = []
    monkeypatch.setattr(
        torch_sampling, "keep_top_in_order", lambda logits, rows, params: groups.append(list(rows))
    )
    batch = [
        params(), params(top_k=1), params(top_p=0.9), params(top_k=MAX_TOPK_CANDIDATES),
        params(top_k=MAX_TOPK_CANDIDATES + 1), params(top_k=9, top_p=0.5), params(top_k=5000),
        params(top_k=4999), params(top_p=1.0), params(top_k=5001, top_p=0.9),
    ]  # fmt: skip
    logits = torch.empty(len(batch), 5000, device="meta")
    keep_top(logits, batch)
    assert groups == [[1, 3, 5], [2, 4, 7, 9]]
    groups.clear()
    keep_top(logits, batch[:2])
    keep_top(logits, batch[2:3])
    keep_top(logits, batch[:1])
    assert groups == [[1], [0]]
