"""Results of a step: accepted drafts, the token after them, and log-probabilities."""

from collections.abc import Callable, Sequence

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence, SequenceOutput
from penstock_engine.sampling.sampler import CORRUPT, sample

MakeScheduled = Callable[..., ScheduledSequence]
VOCAB_SIZE = 4


def one_hot(tokens: Sequence[int]) -> torch.Tensor:
    """Returns logits whose largest are those of the tokens. Rows of CORRUPT are NaN."""
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
def test_accepted_drafts_and_the_token_after_them_are_returned(
    scheduled: MakeScheduled, drafts: list[int], best: list[int], kept: tuple[int, ...]
) -> None:
    """Rows after a rejected draft or after NaN logits are ignored."""
    neighbor = scheduled(temperature=0.0)
    sequences = [neighbor, scheduled(temperature=0.0, drafts=drafts), neighbor]
    first, result, last = sample(one_hot([1, *best, 2]), sequences).results()
    assert (first, last) == (SequenceOutput((1,)), SequenceOutput((2,)))
    is_corrupt = best[0] == CORRUPT
    assert result == SequenceOutput(kept, num_drafts=len(drafts), is_corrupt=is_corrupt)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[list[int], list[int], int | None]]:
    """Generates for each sequence: drafts, the best token of each row, and `logprobs`."""
    token = st.integers(0, VOCAB_SIZE - 1)
    sequences = []
    for _ in range(draw(st.integers(1, 5))):
        drafts = draw(st.lists(token, max_size=3))
        best = [draw(st.sampled_from([draft, 0])) for draft in drafts] + [draw(token)]
        sequences.append((drafts, best, draw(st.none() | st.integers(0, 6))))
    return sequences


@given(batches())
def test_results_do_not_depend_on_the_batch(
    batch: list[tuple[list[int], list[int], int | None]],
) -> None:
    """Each sequence has as many top log-probabilities as it requests, at most the vocabulary."""
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
        for row, token in enumerate(result.logprobs):
            assert token.logprob == pytest.approx(expected[row, token.token_id].item(), abs=1e-5)
            best = expected[row].sort(descending=True)
            count = min(logprobs or 0, VOCAB_SIZE)
            assert [token_id for token_id, _ in token.top] == best.indices[:count].tolist()
            values = [value for _, value in token.top]
            assert values == pytest.approx(best.values[:count].tolist(), abs=1e-5)


def test_logprobs_are_of_unadjusted_logits_in_any_precision(scheduled: MakeScheduled) -> None:
    """The logprobs are the model's own, even in a batch with rows that request none."""
    for dtype in (torch.float32, torch.bfloat16):
        logits = one_hot([1, 2]).to(dtype)
        sequences = [
            scheduled(temperature=0.0, logit_bias={3: 90.0}, logprobs=1),
            scheduled(temperature=0.0),
        ]
        [result, _] = sample(logits, sequences).results()
        [token] = result.logprobs
        expected = one_hot([1])[0].log_softmax(-1)
        assert token.token_id == 3
        assert token.logprob == pytest.approx(expected[3].item(), abs=1e-5)
        assert token.top == ((1, pytest.approx(expected[1].item(), abs=1e-5)),)
