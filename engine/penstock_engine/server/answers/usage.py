"""Token usage of an answer, as OpenAI reports it, and times of its request, as vLLM does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock_engine.server.generation.generator import Choice


@dataclass(frozen=True, slots=True)
class UsageReport:
    """How an answer reports its token usage.

    has_prompt_details: whether it has the number of cached prompt tokens. has_reasoning_details: whether it
    has the number of reasoning tokens. has_timings: whether an answer with one choice has its times.
    """

    has_prompt_details: bool = True
    has_reasoning_details: bool = False
    has_timings: bool = False

    def usage(self, choices: Sequence[Choice], *, has_started: bool = True) -> dict[str, Any]:
        """Returns the token usage of choices; a prompt with several choices counts once.

        has_started: False counts no tokens of the answer.
        """
        firsts = [choice for choice in choices if choice.number == 0] or choices[:1]
        num_prompt_tokens = sum(len(choice.prompt) for choice in firsts)
        num_completion_tokens = sum(choice.completion_tokens for choice in choices if has_started)
        cached = {"cached_tokens": sum(choice.cached_tokens for choice in firsts)}
        counts: dict[str, Any] = {
            "prompt_tokens": num_prompt_tokens,
            "completion_tokens": num_completion_tokens,
            "total_tokens": num_prompt_tokens + num_completion_tokens,
            "prompt_tokens_details": cached if self.has_prompt_details else None,
        }
        if self.has_reasoning_details:
            counters = [choice.reasoning for choice in choices if choice.reasoning and has_started]
            num_tokens = sum(counter.num_tokens for counter in counters)
            counts["completion_tokens_details"] = {"reasoning_tokens": num_tokens}
        return counts

    def metrics(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """Returns the field `metrics` of an answer; nothing if it has none."""
        return {"metrics": timings(choices[0])} if self.has_timings and len(choices) == 1 else {}


def timings(choice: Choice) -> dict[str, Any]:
    """Returns the times of a choice in milliseconds, with vLLM's names.

    The time to the first token begins when the engine begins with the prompt, after the queue.
    """
    event, first_s, last_s = choice.last_event, choice.first_token_s, choice.record.last_token_s
    if event is None or event.scheduled_s is None or first_s is None or last_s is None:
        return {}
    num_tokens, busy_s = choice.completion_tokens, last_s - event.scheduled_s
    return {
        "time_to_first_token_ms": (first_s - event.scheduled_s) * 1e3,
        "generation_time_ms": (last_s - first_s) * 1e3,
        "queue_time_ms": (event.scheduled_s - event.queued_s) * 1e3,
        "mean_itl_ms": (last_s - first_s) * 1e3 / (num_tokens - 1) if num_tokens > 1 else None,
        "tokens_per_second": num_tokens / busy_s if busy_s > 0 else None,
    }
