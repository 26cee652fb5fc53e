"""When a request is too late to be of use, how far it was then, and how fast its tokens are wanted."""

from collections.abc import Mapping
from typing import Literal

from penstock_engine.core.events import TokenEvent
from penstock_engine.server.errors import RequestError
from penstock_engine.wire import ENVOY_TIMEOUT_HEADER, TIMEOUT_HEADER, TPOT_HEADER

Phase = Literal["queued", "prefill", "decode"]

WORDS: dict[Phase, str] = {
    "queued": "while it waited",
    "prefill": "while its prompt was computed",
    "decode": "while its answer was generated",
}


def deadline_s(headers: Mapping[str, str], arrival_s: float, most_s: float | None) -> float | None:
    """On the clock of arrival_s; None: there is all the time in the world.

    The client's own header counts, what Envoy tells of its patience (0: it has no end), and the
    longest that the operator allows. Raises RequestError.
    """
    own = headers.get(TIMEOUT_HEADER)
    limits = [most_s, None if own is None else _seconds(TIMEOUT_HEADER, own)]
    envoy = headers.get(ENVOY_TIMEOUT_HEADER, "0")
    limits.append(_seconds(ENVOY_TIMEOUT_HEADER, envoy) / 1000 or None)
    shortest = min((limit for limit in limits if limit is not None), default=None)
    return None if shortest is None else arrival_s + shortest


def tpot_s(headers: Mapping[str, str]) -> float | None:
    """How far tokens may be apart; None: nobody minds. Raises RequestError."""
    told = headers.get(TPOT_HEADER)
    return None if told is None else _seconds(TPOT_HEADER, told)


def phase_of(event: TokenEvent) -> Phase:
    """How far a sequence was when it ended."""
    if event.first_token_s is not None:
        return "decode"
    return "queued" if event.scheduled_s is None else "prefill"


def too_late(phase: Phase) -> RequestError:
    return RequestError(504, f"the request's deadline passed {WORDS[phase]}")


def _seconds(header: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:  # not a number compares as false
        raise RequestError(400, f"{header} must be a number from 0", param=header)
    return seconds
