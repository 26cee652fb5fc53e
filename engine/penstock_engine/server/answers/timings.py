"""Times of a request in its answer, with --enable-per-request-metrics."""

from typing import Any

from penstock_engine.server.generation.generator import Choice


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
