"""Reads deadlines and token intervals from request headers; names the phase of a timeout."""

from collections.abc import Mapping
from typing import Literal

from penstock_engine.contract.wire import ENVOY_TIMEOUT_HEADER, TIMEOUT_HEADER, TPOT_HEADER
from penstock_engine.core.events import TokenEvent
from penstock_engine.server.transport.errors import RequestError

Phase = Literal["queued", "prefill", "decode"]

PHASE_TEXTS: dict[Phase, str] = {
    "queued": "while it waited",
    "prefill": "while its prompt was computed",
    "decode": "while its answer was generated",
}


def deadline_s(headers: Mapping[str, str], arrival_s: float, most_s: float | None) -> float | None:
    """Returns the deadline on the clock of arrival_s; None if there is none.

    It is the earliest of the client's timeout header, Envoy's timeout header (0: no timeout) and
    most_s, the maximum that the operator allows. Raises RequestError if a header is not a number.
    """
    own = headers.get(TIMEOUT_HEADER)
    limits = [most_s, None if own is None else _seconds(TIMEOUT_HEADER, own)]
    envoy = headers.get(ENVOY_TIMEOUT_HEADER, "0")
    limits.append(_seconds(ENVOY_TIMEOUT_HEADER, envoy) / 1000 or None)
    shortest = min((limit for limit in limits if limit is not None), default=None)
    return None if shortest is None else arrival_s + shortest


def tpot_s(headers: Mapping[str, str]) -> float | None:
    """Returns the requested maximum time between tokens; None if the header is absent.

    Raises RequestError if the header is not a number.
    """
    value = headers.get(TPOT_HEADER)
    return None if value is None else _seconds(TPOT_HEADER, value)


def phase_of(event: TokenEvent) -> Phase:
    """Returns the phase in which a sequence ended, by its last event."""
    if event.first_token_s is not None:
        return "decode"
    return "queued" if event.scheduled_s is None else "prefill"


def deadline_error(phase: Phase) -> RequestError:
    """Returns the error (504) of a request whose deadline passed in `phase`."""
    return RequestError(504, f"the request's deadline passed {PHASE_TEXTS[phase]}")


def _seconds(header: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:  # false for NaN
        raise RequestError(400, f"{header} must be a number from 0", param=header)
    return seconds
