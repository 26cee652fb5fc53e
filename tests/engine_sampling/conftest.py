"""Sequences about to draw, without a model."""

from collections.abc import Callable, Sequence

import pytest

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence

About = Callable[..., ScheduledSequence]


@pytest.fixture
def about() -> About:
    """A sequence about to draw. Keywords: prompt, output, drafts, fields of the step, wishes."""

    def make(
        *, prompt: Sequence[int] = (0,), output: Sequence[int] = (), drafts: Sequence[int] = (),
        **rest: object,
    ) -> ScheduledSequence:  # fmt: skip
        history = [*prompt, *output]
        fields = {n: rest.pop(n) for n in ("ending_token_ids", "constraint") if n in rest}
        sequence = ScheduledSequence(
            request_id="a", start=len(history) - 1, token_ids=(history[-1], *drafts),
            block_table=(), is_sampled=True, sampling=SamplingParams(max_tokens=100, **rest),  # type: ignore[arg-type]
            history=history, num_prompt_tokens=len(prompt), num_drafts=len(drafts),
        )  # fmt: skip
        return sequence._replace(**fields)

    return make
