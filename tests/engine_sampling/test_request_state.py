"""The sampling state of a request is correct in each step and updated incrementally."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.sampling.request_state import NO_TOKENS, RequestState, RequestStates
from penstock_engine.sampling.sampler import sample

MakeScheduled = Callable[..., ScheduledSequence]
VOCAB_SIZE = 50


class CountingList(list[int]):
    """A token history that counts how many of its tokens are read."""

    num_read = 0

    def __getitem__(self, index: Any) -> Any:
        value = super().__getitem__(index)
        self.num_read += len(value) if isinstance(value, list) else 1
        return value

    def __iter__(self) -> Iterator[int]:
        self.num_read += len(self)
        return super().__iter__()


class CountingSet(frozenset[int]):
    """Allowed tokens that count how often they are iterated."""

    num_times = 0

    def __iter__(self) -> Iterator[int]:
        CountingSet.num_times += 1
        return super().__iter__()


PENALTIES = {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2}


def test_a_step_reads_only_the_new_tokens_of_a_history(scheduled: MakeScheduled) -> None:
    """The history has 5,000 tokens. The set of allowed tokens is read only once."""
    CountingSet.num_times = 0
    states, first = RequestStates(), scheduled(
        temperature=0.0, allowed_token_ids=CountingSet(range(0, VOCAB_SIZE, 2)),
        bad_words=((4,), (6, 8, 10)), **PENALTIES,
    )  # fmt: skip
    history = CountingList(index % VOCAB_SIZE for index in range(5000))
    torch.manual_seed(0)
    for _ in range(20):
        sequence = first._replace(
            start=len(history) - 1, token_ids=(0,), history=history, num_prompt_tokens=4000
        )
        logits = torch.randn(1, VOCAB_SIZE)
        expected = sample(logits.clone(), [sequence]).results()
        history.num_read = 0
        CountingSet.num_times = 0
        assert sample(logits, [sequence], states).results() == expected
        if len(history) > 5000:
            assert history.num_read < 10
            assert CountingSet.num_times == 0
        history.append(expected[0].token_ids[0])


def test_a_state_belongs_to_one_sequence_and_is_dropped_with_it(scheduled: MakeScheduled) -> None:
    """The same request id may return with another text or other parameters."""
    states = RequestStates()
    one, other = scheduled(prompt=[1, 2], **PENALTIES), scheduled(prompt=[1, 2], **PENALTIES)
    [state] = states.get([one], VOCAB_SIZE, "cpu")
    assert states.get([one], VOCAB_SIZE, "cpu") == [state]
    assert states.get([other], VOCAB_SIZE, "cpu") != [state]
    [state] = states.get([one], VOCAB_SIZE, "cpu")
    assert states.get([one._replace(sampling=other.sampling)], VOCAB_SIZE, "cpu") != [state]
    [state] = states.get([one], VOCAB_SIZE, "cpu")
    assert states.get([], VOCAB_SIZE, "cpu") == []
    assert states.get([one], VOCAB_SIZE, "cpu") != [state]


Tokens = st.lists(st.integers(0, 9), max_size=6)


@given(Tokens, st.lists(Tokens, max_size=5))
def test_token_counts_equal_those_of_the_text(prompt: list[int], parts: list[list[int]]) -> None:
    counts = NO_TOKENS.with_tokens(np.array(prompt, dtype=np.int64), is_output=False)
    for part in parts:
        counts = counts.with_tokens(np.array(part, dtype=np.int64), is_output=True)
    output = Counter(token for part in parts for token in part)
    expected = {token: output[token] for token in sorted({*prompt, *output})}
    assert dict(zip(counts.token_ids.tolist(), counts.counts.tolist(), strict=True)) == expected


@given(Tokens.filter(bool), st.lists(Tokens, max_size=5), Tokens)
def test_a_state_counts_new_tokens_and_drafts(
    prompt: list[int], parts: list[list[int]], drafts: list[int]
) -> None:
    """Tokens beyond the vocabulary of 8 are not counted. Drafts count only in their own step."""
    history, output = list(prompt), Counter[int]()
    sequence = ScheduledSequence(
        "a", 0, (0,), (), True, SamplingParams(max_tokens=9), history, len(prompt)
    )
    state = RequestState(sequence, 8, "cpu")
    for part in [[], *parts]:
        history += part
        output.update(part)
        for step_drafts in (drafts, []):
            counts = state.token_counts(tuple(step_drafts))
            with_drafts = output + Counter(step_drafts)
            known = [t for t in sorted({*history, *step_drafts}) if t < 8]
            assert counts.token_ids.tolist() == known
            assert counts.counts.tolist() == [with_drafts[token] for token in known]


def test_a_prompt_may_be_counted_in_parts() -> None:
    """The prompt may be longer than the history at the first call."""
    history = [1, 2]
    sequence = ScheduledSequence("a", 0, (0,), (), True, SamplingParams(max_tokens=9), history, 4)
    state = RequestState(sequence, 8, "cpu")
    for tokens, expected in (([], {1: 0, 2: 0}), ([2, 3, 3], {1: 0, 2: 0, 3: 1})):
        history += tokens
        counts = state.token_counts(())
        actual = dict(zip(counts.token_ids.tolist(), counts.counts.tolist(), strict=True))
        assert actual == expected


def test_tensors_of_allowed_tokens_and_bias_are_made_once(scheduled: MakeScheduled) -> None:
    """The tensors contain only tokens of the vocabulary."""
    sequence = scheduled(
        allowed_token_ids=frozenset({0, 3, 4, 99}), logit_bias={3: 1.5, 4: 9.0, 0: -2.0, 99: 9.0}
    )
    state = RequestState(sequence, 4, "cpu")
    assert state.excluded.tolist() == [False, True, True, False]
    token_ids, added = state.bias
    assert (token_ids.tolist(), added.tolist()) == ([3, 0], [1.5, -2.0])
    assert (token_ids.dtype, added.dtype) == (torch.int64, torch.float32)
    assert state.excluded is state.excluded
    assert state.bias is state.bias


def test_states_are_in_the_order_of_their_sequences(scheduled: MakeScheduled) -> None:
    """A state is dropped when its sequence is missing in a step."""
    states = RequestStates()
    one, other = scheduled(), scheduled()._replace(request_id="b")
    first = states.get([one, other], 8, "cpu")
    assert [state.history for state in first] == [one.history, other.history]
    assert [state.history is s.history for state, s in zip(first, (one, other), strict=True)] == [
        True, True,
    ]  # fmt: skip
    assert states.get([other, one], 8, "cpu") == first[::-1]
    assert states.get([other], 8, "cpu") == first[1:]
    [again, kept] = states.get([one, other], 8, "cpu")
    assert kept is first[1]
    assert again is not first[0]
