"""Sampling state between steps: correct in each step, and not computed again."""

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

About = Callable[..., ScheduledSequence]
VOCAB_SIZE = 50


class Read(list[int]):
    """A history that counts how many of its tokens are read."""

    num_read = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.num_read += len(found) if isinstance(found, list) else 1
        return found

    def __iter__(self) -> Iterator[int]:
        self.num_read += len(self)
        return super().__iter__()


class Iterated(frozenset[int]):
    """GrammarMasks tokens that count how often all of them are read."""

    num_times = 0

    def __iter__(self) -> Iterator[int]:
        Iterated.num_times += 1
        return super().__iter__()


PENALTIES = {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2}


def test_a_step_reads_only_the_new_tokens_of_a_history(about: About) -> None:
    """With 5,000 tokens, penalties and bad words; allowed tokens are read only once."""
    Iterated.num_times = 0
    states, first = RequestStates(), about(
        temperature=0.0, allowed_token_ids=Iterated(range(0, VOCAB_SIZE, 2)),
        bad_words=((4,), (6, 8, 10)), **PENALTIES,
    )  # fmt: skip
    history = Read(index % VOCAB_SIZE for index in range(5000))
    torch.manual_seed(0)
    for _ in range(20):
        sequence = first._replace(
            start=len(history) - 1, token_ids=(0,), history=history, num_prompt_tokens=4000
        )
        logits = torch.randn(1, VOCAB_SIZE)
        expected = sample(logits.clone(), [sequence]).results()
        history.num_read = 0
        Iterated.num_times = 0
        assert sample(logits, [sequence], states).results() == expected
        if len(history) > 5000:
            assert history.num_read < 10
            assert Iterated.num_times == 0
        history.append(expected[0].token_ids[0])


def test_a_state_is_of_one_sequence_and_forgotten_with_it(about: About) -> None:
    """The same name may come again with another text or other settings."""
    states = RequestStates()
    one, other = about(prompt=[1, 2], **PENALTIES), about(prompt=[1, 2], **PENALTIES)
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
def test_counts_are_those_of_the_text(prompt: list[int], parts: list[list[int]]) -> None:
    counts = NO_TOKENS.with_tokens(np.array(prompt, dtype=np.int64), is_output=False)
    for part in parts:
        counts = counts.with_tokens(np.array(part, dtype=np.int64), is_output=True)
    output = Counter(token for part in parts for token in part)
    expected = {token: output[token] for token in sorted({*prompt, *output})}
    assert dict(zip(counts.token_ids.tolist(), counts.counts.tolist(), strict=True)) == expected


@given(Tokens.filter(bool), st.lists(Tokens, max_size=5), Tokens)
def test_a_state_counts_the_tokens_of_a_growing_text_and_of_drafts(
    prompt: list[int], parts: list[list[int]], drafts: list[int]
) -> None:
    """Tokens beyond the vocabulary of 8 are not counted, and drafts only in their own step."""
    history, output = list(prompt), Counter[int]()
    sequence = ScheduledSequence(
        "a", 0, (0,), (), True, SamplingParams(max_tokens=9), history, len(prompt)
    )
    state = RequestState(sequence, 8, "cpu")
    for part in [[], *parts]:
        history += part
        output.update(part)
        for guesses in (drafts, []):
            counts = state.token_counts(tuple(guesses))
            with_guesses = output + Counter(guesses)
            known = [t for t in sorted({*history, *guesses}) if t < 8]
            assert counts.token_ids.tolist() == known
            assert counts.counts.tolist() == [with_guesses[token] for token in known]


def test_a_prompt_may_be_counted_in_parts() -> None:
    """The prompt may be longer than the history at the first call."""
    history = [1, 2]
    sequence = ScheduledSequence("a", 0, (0,), (), True, SamplingParams(max_tokens=9), history, 4)
    state = RequestState(sequence, 8, "cpu")
    for more, expected in (([], {1: 0, 2: 0}), ([2, 3, 3], {1: 0, 2: 0, 3: 1})):
        history += more
        counts = state.token_counts(())
        found = dict(zip(counts.token_ids.tolist(), counts.counts.tolist(), strict=True))
        assert found == expected


def test_allowed_tokens_and_bias_are_made_once_and_within_the_vocabulary(about: About) -> None:
    sequence = about(
        allowed_token_ids=frozenset({0, 3, 4, 99}), logit_bias={3: 1.5, 4: 9.0, 0: -2.0, 99: 9.0}
    )
    state = RequestState(sequence, 4, "cpu")
    assert state.excluded.tolist() == [False, True, True, False]
    token_ids, added = state.bias
    assert (token_ids.tolist(), added.tolist()) == ([3, 0], [1.5, -2.0])
    assert (token_ids.dtype, added.dtype) == (torch.int64, torch.float32)
    assert state.excluded is state.excluded
    assert state.bias is state.bias


def test_states_come_in_the_order_of_their_sequences(about: About) -> None:
    """Each is kept as long as its sequence is in every step."""
    states = RequestStates()
    one, other = about(), about()._replace(request_id="b")
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
