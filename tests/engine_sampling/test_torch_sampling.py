"""The draw on a CPU: what each token's share is, and which number draws which token."""

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


def params(**wishes: float) -> SamplingParams:
    return SamplingParams(max_tokens=9, **wishes)  # type: ignore[arg-type]


def row(num_output: int = 0, **wishes: float) -> Row:
    history = [0] * (1 + num_output)
    sequence = ScheduledSequence("a", num_output, (0,), (), True, params(**wishes), history, 1)
    return next(rows_of(sequence, RequestState(sequence, len(LOGITS), "cpu")))


@pytest.mark.parametrize(
    ("wishes", "shares"),
    [
        ({}, (0.4, 0.3, 0.2, 0.1)),
        ({"temperature": 0.5}, (16 / 30, 9 / 30, 4 / 30, 1 / 30)),
        ({"min_p": 0.4}, (4 / 9, 3 / 9, 2 / 9, 0)),
        ({"min_p": 0.6}, (4 / 7, 3 / 7, 0, 0)),
        ({"min_p": 1.0}, (1, 0, 0, 0)),
        ({"min_p": 0.3, "temperature": 0.5}, (16 / 25, 9 / 25, 0, 0)),  # behind the temperature
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
def test_each_token_has_its_share(wishes: dict[str, float], shares: Sequence[float]) -> None:
    """Probabilities do not depend on the parameters of other rows."""
    own = [params(), params(**wishes), params(temperature=2.0), params(**wishes)]
    found = probabilities(torch.tensor([LOGITS] * 4), own)
    assert found[1].tolist() == pytest.approx(list(shares), abs=1e-6)
    assert found[3].tolist() == found[1].tolist()
    assert found[0].tolist() == pytest.approx([0.4, 0.3, 0.2, 0.1])
    roots = [math.sqrt(share) for share in (0.4, 0.3, 0.2, 0.1)]
    assert found[2].tolist() == pytest.approx([root / sum(roots) for root in roots])


@pytest.mark.parametrize("num_output", range(12))
def test_a_number_draws_the_token_whose_stretch_it_falls_into(num_output: int) -> None:
    """Inverse-transform sampling with the number of seed and position, in the vocabulary's order."""
    rows = [row(num_output, seed=seed) for seed in range(20)]
    expected = [
        int(np.searchsorted(np.cumsum([0.4, 0.3, 0.2, 0.1]), uniform(seed, 1 + num_output)))
        for seed in range(20)
    ]
    assert sample_with_torch(torch.tensor([LOGITS] * 20), rows, None).tolist() == expected


def test_a_token_without_weight_is_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a leading token of weight 0 nor one between others is drawn, even by the number 0."""
    logits = torch.tensor([[-torch.inf, 1.0, -torch.inf, 1.0]])
    for number, token in ((0.0, 1), (0.25, 1), (0.5, 3), (0.99, 3)):
        monkeypatch.setattr(torch_sampling, "uniform", lambda seed, position, number=number: number)
        assert sample_with_torch(logits.clone(), [row()], None).tolist() == [token]


def test_greedy_rows_take_the_best_and_others_their_draw() -> None:
    logits = torch.tensor([LOGITS, LOGITS[::-1], LOGITS, LOGITS[::-1]])
    rows = [
        row(temperature=0.0), row(temperature=0.0, top_k=2, seed=5), row(seed=3),
        row(temperature=1e-6),
    ]  # fmt: skip
    [drawn] = sample_with_torch(logits[2:3].clone(), rows[2:3], None).tolist()
    assert sample_with_torch(logits, rows, None).tolist() == [0, 3, drawn, 3]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_is_drawn_where_nothing_is_left(temperature: float) -> None:
    logits = torch.tensor([[-torch.inf] * 4, LOGITS, [torch.nan] * 4])
    tokens = sample_with_torch(logits, [row(temperature=temperature)] * 3, None).tolist()
    assert (tokens[0], tokens[2]) == (NO_TOKEN, NO_TOKEN)
    assert 0 <= tokens[1] < 4


def test_a_small_weight_of_a_large_vocabulary_is_not_lost() -> None:
    """In single precision the sum of so many would swallow it."""
    logits = torch.zeros(1, 2_000_000)
    logits[0, -1] = math.log(2_000_000.0)  # as much as all others together
    rows = [row(seed=seed) for seed in range(24)]
    tokens = [sample_with_torch(logits.clone(), [one], None).item() for one in rows]
    assert [token == 1_999_999 for token in tokens] == [uniform(s, 1) > 0.5 for s in range(24)]


@pytest.mark.parametrize(
    ("wishes", "kept"),
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
def test_of_equal_tokens_the_first_stay(
    keep: object, wishes: dict[str, float], kept: list[int]
) -> None:
    """Weights 3, 1, 3, 10 and 1: of two equal ones at the edge, that of the lower id."""
    logits = torch.tensor([[3.0, 1.0, 3.0, 10.0, 1.0]]).log()
    before, own = logits.clone(), params(**wishes)
    if keep is keep_top_of_row:
        keep_top_of_row(logits[0].numpy(), own)
    elif keep is keep_top:
        keep_top(logits, [own])
    else:
        keep_top_in_order(logits, [0], [own])
    stays = logits[0].isfinite().nonzero()[:, 0].tolist()
    assert len(stays) == len(kept)
    assert keep is keep_top_in_order or stays == kept
    assert logits[0, stays].tolist() == before[0, stays].tolist()


def test_on_a_device_rows_of_a_small_top_k_are_ordered_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few best tokens cost a tenth of a sort of all. Rows without limits are in neither group."""
    groups: list[list[int]] = []
    monkeypatch.setattr(
        torch_sampling, "keep_top_in_order", lambda logits, rows, params: groups.append(list(rows))
    )
    own = [
        params(), params(top_k=1), params(top_p=0.9), params(top_k=MAX_TOPK_CANDIDATES),
        params(top_k=MAX_TOPK_CANDIDATES + 1), params(top_k=9, top_p=0.5), params(top_k=5000),
        params(top_k=4999), params(top_p=1.0), params(top_k=5001, top_p=0.9),
    ]  # fmt: skip
    logits = torch.empty(len(own), 5000, device="meta")
    keep_top(logits, own)
    assert groups == [[1, 3, 5], [2, 4, 7, 9]]
    groups.clear()
    keep_top(logits, own[:2])
    keep_top(logits, own[2:3])
    keep_top(logits, own[:1])
    assert groups == [[1], [0]]
