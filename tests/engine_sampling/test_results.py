"""Results of a step: accepted drafts, the token after them, and log-probabilities."""

from collections.abc import Callable, Sequence

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence, SequenceOutput
from penstock_engine.sampling.sampler import CORRUPT, sample

About = Callable[..., ScheduledSequence]
VOCAB_SIZE = 4


def one_hot(tokens: Sequence[int]) -> torch.Tensor:
    """Logits of which a greedy row draws these tokens; CORRUPT: they are no numbers."""
    logits = torch.zeros(len(tokens), VOCAB_SIZE)
    for row, token in zip(logits, tokens, strict=True):
        if token == CORRUPT:
            row[:] = torch.nan
        else:
            row[token] = 5.0
    return logits


@pytest.mark.parametrize(
    ("drafts", "best", "kept"),
    [
        ([], [3], (3,)),
        ([], [0], (0,)),
        ([1], [1, 2], (1, 2)),
        ([1], [2, 3], (2,)),
        ([1, 2], [1, 2, 0], (1, 2, 0)),
        ([1, 2], [1, 3, 0], (1, 3)),
        ([1, 2], [2, 2, 0], (2,)),
        ([1, 2], [1, CORRUPT, 0], (1,)),
        ([1, 2], [1, 2, CORRUPT], (1, 2)),
        ([1], [CORRUPT, 2], ()),
        ([], [CORRUPT], ()),
    ],
)
def test_right_drafts_and_the_token_after_them_are_kept(
    about: About, drafts: list[int], best: list[int], kept: tuple[int, ...]
) -> None:
    """Behind one that is wrong, or whose logits are no numbers, nothing counts."""
    neighbour = about(temperature=0.0)
    sequences = [neighbour, about(temperature=0.0, drafts=drafts), neighbour]
    first, result, last = sample(one_hot([1, *best, 2]), sequences).results()
    assert (first, last) == (SequenceOutput((1,)), SequenceOutput((2,)))
    is_corrupt = best[0] == CORRUPT
    assert result == SequenceOutput(kept, num_drafts=len(drafts), is_corrupt=is_corrupt)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[list[int], list[int], int | None]]:
    """For each sequence: its drafts, the tokens of its rows, and the log-probabilities requested."""
    token = st.integers(0, VOCAB_SIZE - 1)
    sequences = []
    for _ in range(draw(st.integers(1, 5))):
        drafts = draw(st.lists(token, max_size=3))
        best = [draw(st.sampled_from([draft, 0])) for draft in drafts] + [draw(token)]
        sequences.append((drafts, best, draw(st.none() | st.integers(0, 6))))
    return sequences


@given(batches())
def test_a_batch_tells_each_what_it_would_be_told_alone(
    batch: list[tuple[list[int], list[int], int | None]],
) -> None:
    """And of as many of the best as each asks for, at most the vocabulary."""
    sequences = [
        ScheduledSequence(
            "a", 0, (0, *drafts), (), True,
            SamplingParams(max_tokens=9, temperature=0.0, logprobs=logprobs),
            [0], 1, num_drafts=len(drafts),
        )
        for drafts, _, logprobs in batch
    ]  # fmt: skip
    noise = torch.arange(VOCAB_SIZE) * 0.1
    parts = [one_hot(best) + noise * (1 + i) for i, (_, best, _) in enumerate(batch)]
    results = sample(torch.cat(parts), sequences).results()
    for sequence, part, result, (_, _, logprobs) in zip(
        sequences, parts, results, batch, strict=True
    ):
        [alone] = sample(part.clone(), [sequence]).results()
        assert result.token_ids == alone.token_ids
        assert [t.token_id for t in result.logprobs] == (
            [] if logprobs is None else list(result.token_ids)
        )
        expected = part.log_softmax(-1)
        for row, told in enumerate(result.logprobs):
            assert told.logprob == pytest.approx(expected[row, told.token_id].item(), abs=1e-5)
            best = expected[row].sort(descending=True)
            count = min(logprobs or 0, VOCAB_SIZE)
            assert [token for token, _ in told.top] == best.indices[:count].tolist()
            values = [value for _, value in told.top]
            assert values == pytest.approx(best.values[:count].tolist(), abs=1e-5)


def test_log_probabilities_are_of_unadjusted_logits(about: About) -> None:
    """They are the model's, in half precision too and beside rows that request none."""
    for dtype in (torch.float32, torch.bfloat16):
        logits = one_hot([1, 2]).to(dtype)
        sequences = [
            about(temperature=0.0, logit_bias={3: 90.0}, logprobs=1),
            about(temperature=0.0),
        ]
        [result, _] = sample(logits, sequences).results()
        [told] = result.logprobs
        expected = one_hot([1])[0].log_softmax(-1)
        assert told.token_id == 3
        assert told.logprob == pytest.approx(expected[3].item(), abs=1e-5)
        [(token, value)] = told.top
        assert (token, value) == (1, pytest.approx(expected[1].item(), abs=1e-5))
