"""Fallback policy: whether a request that a backend did not answer goes to another one, and to which.

The request has reached no client yet. It falls back only for what the backend lacks. An error that is the
client's own, or a limit of its tenant or of the gateway, would be the same everywhere.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.core.routing.charge import CHARGES, Ending
from penstock.core.routing.route import Backend, Fallback, FallbackReason

# Reasons of the gateway's own errors for which a request may fall back. All others are no reason.
REASONS_BY_REJECTION: Mapping[str, FallbackReason] = {
    "displaced": FallbackReason.OVERLOAD,
    "overloaded": FallbackReason.OVERLOAD,
    "queue_full": FallbackReason.OVERLOAD,
    "engines_failed": FallbackReason.ERROR,
    "adapter_load_failed": FallbackReason.ABSENCE,
    "external_key_missing": FallbackReason.ABSENCE,
    "external_not_allowed": FallbackReason.ABSENCE,
    "no_endpoint": FallbackReason.ABSENCE,
    "route_broken": FallbackReason.ABSENCE,
    "scaled_to_zero": FallbackReason.ABSENCE,
    "service_missing": FallbackReason.ABSENCE,
    "stalled": FallbackReason.ABSENCE,
    "late_first_token": FallbackReason.LATE,
}


def fallback_reason(rejection: str, failures: Sequence[Ending]) -> FallbackReason | None:
    """The reason for which a request may fall back; None: there is none.

    rejection: reason of the error that the client would get. failures: of the attempts at engines. Engines
    that could not be reached, or left before they answered, are absent: no engine has had any work.
    """
    reason = REASONS_BY_REJECTION.get(rejection)
    if reason in (None, FallbackReason.LATE):
        return reason
    if any(CHARGES[each].retry not in ("Waiting", "Moved") for each in failures):
        return FallbackReason.ERROR
    return FallbackReason.ABSENCE if reason is FallbackReason.ERROR else reason


def needs_retry_budget(reason: FallbackReason) -> bool:
    """Whether the retry budget bounds fallbacks for the reason.

    A request that breaks engines would break those of all fallbacks.
    """
    return reason is FallbackReason.ERROR


def choose_fallback(
    fallbacks: Sequence[Fallback],
    reason: FallbackReason,
    tried: Collection[Backend],
    is_usable: Callable[[Backend], bool],
) -> Fallback | None:
    """The next backend that a request falls back to; None if there is none.

    tried: backends that have had the request. is_usable: whether the caller may use the backend, and it
    exists.
    """
    return next(
        (
            each
            for each in fallbacks
            if reason in each.reasons and each.backend not in tried and is_usable(each.backend)
        ),
        None,
    )
