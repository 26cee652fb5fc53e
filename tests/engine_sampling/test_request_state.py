"""What is kept of a request between steps: right at each of them, and not worked out again."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given

from penstock_engine.core.step import ScheduledSequence
from penstock_engine.sampling.request_state import NO_TOKENS, RequestStates
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
    """Allowed tokens that count how often all of them are read."""

    num_times = 0

    def __iter__(self) -> Iterator[int]:
        Iterated.num_times += 1
        return super().__iter__()


PENALTIES = {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2}


def test_a_step_reads_only_the_new_tokens_of_a_history(about: About) -> None:
    """Of 5,000 tokens, with penalties and bad words; and allowed tokens once in all steps."""
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
    [state] = states.of([one], VOCAB_SIZE, "cpu")
    assert states.of([one], VOCAB_SIZE, "cpu") == [state]
    assert states.of([other], VOCAB_SIZE, "cpu") != [state]
    [state] = states.of([one], VOCAB_SIZE, "cpu")
    assert states.of([one._replace(sampling=other.sampling)], VOCAB_SIZE, "cpu") != [state]
    [state] = states.of([one], VOCAB_SIZE, "cpu")
    assert states.of([], VOCAB_SIZE, "cpu") == []
    assert states.of([one], VOCAB_SIZE, "cpu") != [state]


Tokens = st.lists(st.integers(0, 9), max_size=6)


@given(Tokens, st.lists(Tokens, max_size=5))
def test_counts_are_those_of_the_text(prompt: list[int], parts: list[list[int]]) -> None:
    counts = NO_TOKENS.with_tokens(np.array(prompt, dtype=np.int64), is_output=False)
    for part in parts:
        counts = counts.with_tokens(np.array(part, dtype=np.int64), is_output=True)
    output = Counter(token for part in parts for token in part)
    expected = {token: output[token] for token in sorted({*prompt, *output})}
    assert dict(zip(counts.token_ids.tolist(), counts.counts.tolist(), strict=True)) == expected
