"""Logit adjustments against a reference that is written token by token."""

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.sampling.bias import apply_penalties, mask_and_bias
from penstock_engine.sampling.request_state import RequestState
from penstock_engine.sampling.row import Row, rows_of

About = Callable[..., ScheduledSequence]
VOCAB_SIZE = 6
LOGITS = [2.0, -1.0, 0.0, 0.5, -3.0, 1.0]
tokens = st.lists(st.integers(0, 3), max_size=6)


def rows(sequence: ScheduledSequence) -> list[Row]:
    return list(rows_of(sequence, RequestState(sequence, VOCAB_SIZE, "cpu")))


def changed(sequence: ScheduledSequence) -> list[list[float]]:
    own = rows(sequence)
    logits = torch.tensor([LOGITS] * len(own))
    mask_and_bias(logits, own)
    apply_penalties(logits, own)
    values: list[list[float]] = logits.tolist()
    return values


def sequence_of(
    prompt: list[int], output: list[int], drafts: list[int], sampling: SamplingParams
) -> ScheduledSequence:
    history = [*prompt, *output]
    return ScheduledSequence(
        "a", len(history) - 1, (history[-1], *drafts), (), True, sampling, history, len(prompt),
        num_drafts=len(drafts),
    )  # fmt: skip


@given(tokens.filter(bool), tokens, tokens, st.lists(tokens.filter(bool), max_size=4))
def test_a_bad_word_is_forbidden_where_its_last_token_would_complete_it(
    prompt: list[int], output: list[int], drafts: list[int], words: list[list[int]]
) -> None:
    """Counted in the output, with the drafts before the row: never in the prompt."""
    sampling = SamplingParams(max_tokens=99, bad_words=tuple(map(tuple, words)))
    for index, logits in enumerate(changed(sequence_of(prompt, output, drafts, sampling))):
        text = [*output, *drafts[:index]]
        for token in range(VOCAB_SIZE):
            written = [*text, token]
            is_bad = any(written[-len(word) :] == word for word in words)
            assert (logits[token] == -torch.inf) == is_bad


@given(
    tokens.filter(bool), tokens, tokens, st.floats(0.5, 2), st.floats(-2, 2), st.floats(-2, 2),
)  # fmt: skip
def test_penalties_are_those_of_the_formulas(
    prompt: list[int], output: list[int], drafts: list[int], repetition: float, frequency: float,
    presence: float,
) -> None:  # fmt: skip
    """Repetition over all tokens before a row, frequency and presence over those generated."""
    sampling = SamplingParams(
        max_tokens=99, repetition_penalty=repetition, frequency_penalty=frequency,
        presence_penalty=presence,
    )  # fmt: skip
    for index, logits in enumerate(changed(sequence_of(prompt, output, drafts, sampling))):
        text = [*output, *drafts[:index]]
        for token in range(VOCAB_SIZE):
            expected = LOGITS[token]
            if token in prompt or token in text:
                expected *= 1 / repetition if expected > 0 else repetition
            expected -= frequency * text.count(token) + presence * (token in text)
            assert logits[token] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({"logit_bias": {0: 1.5, 5: -2.0}}, {0: 3.5, 5: -1.0}),
        ({"logit_bias": {0: 1.5, VOCAB_SIZE: 9.0, 1000: 9.0}}, {0: 3.5}),
        ({"logit_bias": {VOCAB_SIZE: 9.0}}, {}),
        ({"bad_words": ((VOCAB_SIZE,), (1000,), (1,))}, {1: -torch.inf}),
        ({"bad_words": ((5,),)}, {5: -torch.inf}),
        (
            {"allowed_token_ids": frozenset({0, 5, VOCAB_SIZE, 1000})},
            dict.fromkeys((1, 2, 3, 4), -torch.inf),
        ),
        ({"min_tokens": 3, "ending_token_ids": frozenset({4, VOCAB_SIZE})}, {4: -torch.inf}),
        ({"min_tokens": 2, "ending_token_ids": frozenset({4})}, {}),
        # A token that is not allowed stays so, whatever is added.
        (
            {"logit_bias": {1: 100.0}, "allowed_token_ids": frozenset({0, 2, 3, 4, 5})},
            {1: -torch.inf},
        ),
        ({"logit_bias": {1: 100.0}, "bad_words": ((1,),)}, {1: -torch.inf}),
    ],
    ids=str,
)
def test_wishes_change_the_tokens_they_name(
    about: About, wishes: dict[str, object], expected: dict[int, float]
) -> None:
    """Behind two tokens of output; those beyond the vocabulary are passed over."""
    [logits] = changed(about(output=[2, 3], **wishes))
    assert logits == [expected.get(token, value) for token, value in enumerate(LOGITS)]


def test_min_tokens_counts_drafts_before_a_row(about: About) -> None:
    """With one output token and two drafts, the third row has three tokens before it."""
    sequence = about(
        output=[1], drafts=[1, 1], min_tokens=3, ending_token_ids=frozenset({4}), bad_words=((0,),)
    )
    assert [[logits[4], logits[0]] for logits in changed(sequence)] == [
        [-torch.inf, -torch.inf], [-torch.inf, -torch.inf], [LOGITS[4], -torch.inf],
    ]  # fmt: skip


def test_rows_of_others_are_left_alone(about: About) -> None:
    """A row without adjustments between rows with every kind stays as it is."""
    wishing = [
        about(frequency_penalty=1.0, output=[2]), about(bad_words=((2,),)),
        about(allowed_token_ids=frozenset({0})), about(logit_bias={1: 1.0}),
    ]  # fmt: skip
    for one in wishing:
        every = [row for s in (one, about(), one, about()) for row in rows(s)]
        logits = torch.tensor([LOGITS] * 4)
        mask_and_bias(logits, every)
        apply_penalties(logits, every)
        assert logits[1].tolist() == logits[3].tolist() == LOGITS
        assert logits[0].tolist() == logits[2].tolist() != LOGITS


@given(tokens.filter(bool), tokens, tokens, st.integers(0, 8))
def test_the_tail_of_the_output_is_what_was_generated_last(
    prompt: list[int], output: list[int], drafts: list[int], num_tokens: int
) -> None:
    sequence = sequence_of(prompt, output, drafts, SamplingParams(max_tokens=99))
    own = rows(sequence)
    assert len(own) == len(drafts) + 1
    for index, row in enumerate(own):
        text = [*output, *drafts[:index]]
        assert row.output_tail(num_tokens) == text[max(0, len(text) - num_tokens) :]
        assert (row.num_output_tokens, row.position) == (len(text), len(prompt) + len(text))
        assert row.num_drafts == index
