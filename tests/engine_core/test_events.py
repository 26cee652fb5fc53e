"""Tests of the fields of token events."""

from penstock_engine.core.events import TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import TokenLogprobs

LOGPROBS = TokenLogprobs(5, -1.0, 1, ())


def sequence() -> Sequence:
    one = Sequence("a", [1, 2, 3, 4], SamplingParams(max_tokens=9), frozenset(), 1.0)
    one.tokens += [5, 6]
    one.first_scheduled_s, one.first_token_s = 2.0, 3.0
    one.num_cached_tokens, one.preempted_s, one.resumed_s = 3, [2.5, 3.0], [2.75]
    return one


def test_an_event_has_the_state_of_its_sequence() -> None:
    event = TokenEvent.of(sequence(), 4.0)
    assert event == TokenEvent(
        request_id="a", token_ids=(), logprobs=(), prompt_logprobs=(), embedding=(),
        ending_token_id=None, finish_reason=None, failure=None, now_s=4.0, queued_s=1.0,
        scheduled_s=2.0, first_token_s=3.0, num_prompt_tokens=4, num_output_tokens=2,
        num_cached_tokens=3, prefill_kv_computed_tokens=1, preemptions=2,
        pauses=((2.5, 2.75), (3.0, 4.0)),
    )  # fmt: skip


def test_an_event_has_the_given_tokens_and_reasons() -> None:
    event = TokenEvent.of(
        sequence(), 4.0, (5, 6), (LOGPROBS,), (LOGPROBS, LOGPROBS), (0.5,), 6, "stop", "step_failed"
    )
    assert (event.token_ids, event.logprobs, event.prompt_logprobs) == (
        (5, 6),
        (LOGPROBS,),
        (LOGPROBS, LOGPROBS),
    )
    assert (event.embedding, event.ending_token_id) == ((0.5,), 6)
    assert (event.finish_reason, event.failure) == ("stop", "step_failed")
