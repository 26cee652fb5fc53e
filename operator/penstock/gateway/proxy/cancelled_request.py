"""Endings and error responses of requests that are cancelled from outside."""

from penstock.core.routing.charge import Ending, ending_of_timeout
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.request_lifecycle.cancellation import CancelCause, RequestCancelled
from penstock.gateway.request_lifecycle.timeline import RequestPhase


def ending_of_cancellation(cancelled: RequestCancelled, *, is_blocked: bool) -> Ending | None:
    """How a cancelled request ends; None: as one that no engine answered.

    is_blocked: whether its client does not read the response.
    """
    match cancelled.cause, cancelled.phase:
        case CancelCause.CLIENT_LEFT, _:
            return Ending.CLIENT_LEFT
        case CancelCause.SHUTDOWN, _:
            return Ending.SHUTDOWN
        case _ if is_blocked:
            return Ending.CLIENT_STALLED
        case _, (RequestPhase.RECEIVE | RequestPhase.WAIT):
            return None
        case cause, phase:
            return ending_of_timeout(
                has_response=phase is not RequestPhase.FIRST_BYTE,
                is_total=cancelled.is_total,
                is_of_route=cause is CancelCause.ROUTE_TIMEOUT,
            )


def error_of_cancellation(cause: CancelCause) -> RequestError:
    """The error for a client that waits for a response which was cancelled. It did not leave itself."""
    status, message = CANCELLED_RESPONSES[cause]
    retry_after_s = RETRY_AFTER_S if status == 503 else None
    return RequestError(status, message, retry_after_s=retry_after_s, reason=cause.value)


CANCELLED_RESPONSES = {
    CancelCause.TIMEOUT: (504, "the engine did not answer in time"),
    CancelCause.ROUTE_TIMEOUT: (504, "the time limit of the ModelRoute is over"),
    CancelCause.SHUTDOWN: (503, "the gateway is stopping"),
}
