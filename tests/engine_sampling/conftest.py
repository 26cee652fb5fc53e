"""Fixture: makes scheduled sequences for the sampler, without a model."""

from collections.abc import Callable, Sequence

import pytest

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence

MakeScheduled = Callable[..., ScheduledSequence]


@pytest.fixture
def scheduled() -> MakeScheduled:
    """Returns a function that makes a sequence of a step that samples.

    Its keywords are token ids (prompt, output, drafts), fields of the scheduled sequence
    (ending_token_ids, constraint), and sampling parameters.
    """

    def make(
        *, prompt: Sequence[int] = (0,), output: Sequence[int] = (), drafts: Sequence[int] = (),
        **others: object,
    ) -> ScheduledSequence:  # fmt: skip
        history = [*prompt, *output]
        fields = {n: others.pop(n) for n in ("ending_token_ids", "constraint") if n in others}
        sequence = ScheduledSequence(
            request_id="a", start=len(history) - 1, token_ids=(history[-1], *drafts),
            block_table=(), is_sampled=True, sampling=SamplingParams(max_tokens=100, **others),  # type: ignore[arg-type]
            history=history, num_prompt_tokens=len(prompt), num_drafts=len(drafts),
        )  # fmt: skip
        return sequence._replace(**fields)

    return make
