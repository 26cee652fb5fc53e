"""Logit adjustments equal those of a simple reference that works token by token."""

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.sampling.bad_words import BadWords
from penstock_engine.sampling.bias import apply_penalties, mask_and_bias
from penstock_engine.sampling.request_state import RequestState
from penstock_engine.sampling.row import Row, rows_of

MakeScheduled = Callable[..., ScheduledSequence]
VOCAB_SIZE = 6
LOGITS = [2.0, -1.0, 0.0, 0.5, -3.0, 1.0]
tokens = st.lists(st.integers(0, 3), max_size=6)


def rows(sequence: ScheduledSequence) -> list[Row]:
    return list(rows_of(sequence, RequestState(sequence, VOCAB_SIZE, "cpu")))


def adjusted(sequence: ScheduledSequence) -> list[list[float]]:
    """Returns the logits of each row of a sequence after all adjustments."""
    sequence_rows = rows(sequence)
    logits = torch.tensor([LOGITS] * len(sequence_rows))
    mask_and_bias(logits, sequence_rows)
    apply_penalties(logits, sequence_rows)
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
def test_the_last_token_of_a_bad_word_is_excluded_after_the_others(
    prompt: list[int], output: list[int], drafts: list[int], words: list[list[int]]
) -> None:
    """The tokens before it are searched in the output and the drafts, but not in the prompt."""
    sampling = SamplingParams(max_tokens=99, bad_words=tuple(map(tuple, words)))
    for index, logits in enumerate(adjusted(sequence_of(prompt, output, drafts, sampling))):
        text = [*output, *drafts[:index]]
        for token in range(VOCAB_SIZE):
            extended = [*text, token]
            is_bad = any(extended[-len(word) :] == word for word in words)
            assert (logits[token] == -torch.inf) == is_bad


def test_only_bad_words_that_the_last_token_can_begin_are_compared_with_the_text() -> None:
    words = BadWords([(1,), (5, 6, 2), (5, 6, 7, 3), (9,) * 256])
    text: list[int] = []
    lengths: list[int] = []

    def output_tail(num_tokens: int) -> list[int]:
        lengths.append(num_tokens)
        return text[-num_tokens:]

    for token, forbidden, asked in (
        (4, {1}, [1]), (5, {1}, [1]), (6, {1, 2}, [1, 2]), (7, {1, 3}, [1, 3]), (6, {1}, [1, 2]),
    ):  # fmt: skip
        text.append(token)
        lengths.clear()
        assert words.next_tokens(output_tail) == forbidden
        assert lengths == asked
    lengths.clear()
    assert BadWords([(1,), (2,)]).next_tokens(output_tail) == {1, 2}
    assert lengths == []


@given(
    tokens.filter(bool), tokens, tokens, st.floats(0.5, 2), st.floats(-2, 2), st.floats(-2, 2),
)  # fmt: skip
def test_penalties_follow_their_formulas(
    prompt: list[int], output: list[int], drafts: list[int], repetition: float, frequency: float,
    presence: float,
) -> None:  # fmt: skip
    """repetition_penalty counts all tokens before a row, the others only generated tokens."""
    sampling = SamplingParams(
        max_tokens=99, repetition_penalty=repetition, frequency_penalty=frequency,
        presence_penalty=presence,
    )  # fmt: skip
    for index, logits in enumerate(adjusted(sequence_of(prompt, output, drafts, sampling))):
        text = [*output, *drafts[:index]]
        for token in range(VOCAB_SIZE):
            expected = LOGITS[token]
            if token in prompt or token in text:
                expected *= 1 / repetition if expected > 0 else repetition
            expected -= frequency * text.count(token) + presence * (token in text)
            assert logits[token] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("parameters", "expected"),
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
        # A bias cannot make an excluded token possible.
        (
            {"logit_bias": {1: 100.0}, "allowed_token_ids": frozenset({0, 2, 3, 4, 5})},
            {1: -torch.inf},
        ),
        ({"logit_bias": {1: 100.0}, "bad_words": ((1,),)}, {1: -torch.inf}),
    ],
    ids=str,
)
def test_parameters_change_only_the_tokens_that_they_contain(
    scheduled: MakeScheduled, parameters: dict[str, object], expected: dict[int, float]
) -> None:
    """The output has two tokens. Token ids beyond the vocabulary are ignored."""
    [logits] = adjusted(scheduled(output=[2, 3], **parameters))
    assert logits == [expected.get(token, value) for token, value in enumerate(LOGITS)]


def test_min_tokens_counts_drafts_before_a_row(scheduled: MakeScheduled) -> None:
    """The third row has three tokens before it: one output token and two drafts."""
    sequence = scheduled(
        output=[1], drafts=[1, 1], min_tokens=3, ending_token_ids=frozenset({4}), bad_words=((0,),)
    )
    assert [[logits[4], logits[0]] for logits in adjusted(sequence)] == [
        [-torch.inf, -torch.inf], [-torch.inf, -torch.inf], [LOGITS[4], -torch.inf],
    ]  # fmt: skip


def test_rows_without_adjustments_do_not_change(scheduled: MakeScheduled) -> None:
    """Rows without adjustments are between rows with one kind of adjustment each."""
    adjusting = [
        scheduled(frequency_penalty=1.0, output=[2]), scheduled(bad_words=((2,),)),
        scheduled(allowed_token_ids=frozenset({0})), scheduled(logit_bias={1: 1.0}),
    ]  # fmt: skip
    for sequence in adjusting:
        batch = (sequence, scheduled(), sequence, scheduled())
        all_rows = [row for s in batch for row in rows(s)]
        logits = torch.tensor([LOGITS] * 4)
        mask_and_bias(logits, all_rows)
        apply_penalties(logits, all_rows)
        assert logits[1].tolist() == logits[3].tolist() == LOGITS
        assert logits[0].tolist() == logits[2].tolist() != LOGITS


@given(tokens.filter(bool), tokens, tokens, st.integers(0, 8))
def test_the_tail_of_the_output_has_the_last_generated_tokens(
    prompt: list[int], output: list[int], drafts: list[int], num_tokens: int
) -> None:
    sequence = sequence_of(prompt, output, drafts, SamplingParams(max_tokens=99))
    sequence_rows = rows(sequence)
    assert len(sequence_rows) == len(drafts) + 1
    for index, row in enumerate(sequence_rows):
        text = [*output, *drafts[:index]]
        assert row.output_tail(num_tokens) == text[max(0, len(text) - num_tokens) :]
        assert (row.num_output_tokens, row.position) == (len(text), len(prompt) + len(text))
        assert row.num_drafts == index
