"""Request log: a line for each finished choice and each failed request, without their texts."""

import logging

from penstock_engine.server.generation.generator import Choice
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.telemetry.logs import fields

logger = logging.getLogger(__name__)


def log_choice(
    model: str,
    request_id: str,
    choice: Choice,
    finish_reason: str,
    *,
    client_request_id: str | None = None,
) -> None:
    """Logs a finished choice.

    client_request_id: the id in the request's body. finish_reason: "timeout" in the line if its
    deadline ended it.
    """
    record, event = choice.record, choice.last_event
    first_s, last_s, queue_s, tpot_s = choice.first_token_s, record.last_token_s, None, None
    if event is not None and event.scheduled_s is not None:
        queue_s = event.scheduled_s - event.queued_s
    if first_s is not None and last_s is not None and choice.completion_tokens > 1:
        tpot_s = (last_s - first_s) / (choice.completion_tokens - 1)
    phase = record.timeout_phase
    logger.info(
        "request",
        extra=fields(
            request_id=request_id,
            client_request_id=client_request_id,
            trace_id=record.trace_id or None,
            model=model,
            adapter=record.adapter or None,
            prompt_tokens=len(choice.prompt),
            completion_tokens=choice.completion_tokens,
            cached_tokens=choice.cached_tokens,
            queue_ms=_ms(queue_s),
            ttft_ms=_ms(None if first_s is None else first_s - record.arrival_s),
            tpot_ms=_ms(tpot_s),
            preemptions=0 if event is None else event.preemptions,
            finish_reason=finish_reason if phase is None else "timeout",
            phase=phase,
        ),
    )


def log_failure(request_id: str, error: RequestError) -> None:
    """Logs why a request failed. The message of a 400 is left out, as it may quote the request."""
    reason = None if error.status == 400 else error.message
    logger.info(
        "request failed",
        extra=fields(request_id=request_id, status=error.status, reason=reason, param=error.param),
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 2)
