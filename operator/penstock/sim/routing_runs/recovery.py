"""How conversations lose their cached prefixes in an event, and get them back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from penstock.sim.request import Request

# Turns of the last seconds before an event are the state that it is compared with.
BEFORE_S = 120.0
# Turns after an event that are looked at, and the share of the reusable tokens at which hits are back.
NUM_TURNS, RECOVERED = 6, 0.9


@dataclass(frozen=True, slots=True)
class Recovery:
    """Hits of conversations around an event, as a part of the tokens that could be hits.

    before: in turns of the last BEFORE_S. after: in their first, second and later turns after it. turns: mean
    number of turns until a conversation has RECOVERED of them again; those that end before count with their
    number plus 1. conversations: that had turns before and after.
    """

    before: float
    after: tuple[float, ...]
    turns: float
    conversations: int


def recovery(
    requests: Sequence[Request], reusable: Mapping[str, int], at_s: float, pod: str
) -> Recovery | None:
    """Hits around an event at this time. None without conversations around it.

    requests: in order of arrival. reusable: tokens by request id. pod: only conversations whose last request
    before the event was there count; "": all.
    """
    earlier: dict[str, Request] = {}
    later: dict[str, list[float]] = {}
    before: list[float] = []
    for request in requests:
        ratio = hit_ratio(request, reusable)
        if ratio is None:
            continue
        if request.sent_s < at_s:
            earlier[request.session] = request
            if request.turn and request.sent_s >= at_s - BEFORE_S:
                before.append(ratio)
        elif (last := earlier.get(request.session)) is not None and pod in ("", last.pod):
            later.setdefault(request.session, []).append(ratio)
    if not before or not later:
        return None
    columns = [
        [ratios[turn] for ratios in later.values() if len(ratios) > turn]
        for turn in range(NUM_TURNS)
    ]
    return Recovery(
        fmean(before),
        tuple(fmean(column) if column else 1.0 for column in columns),
        fmean(turns_until_recovered(ratios) for ratios in later.values()),
        len(later),
    )


def hit_ratio(request: Request, reusable: Mapping[str, int]) -> float | None:
    """Cached tokens as a part of the reusable ones; None if it has no session, answer or reusable tokens."""
    possible = reusable[request.request_id]
    if not request.session or not possible or request.first_token_s is None:
        return None
    return min(1.0, request.cached_tokens / possible)


def turns_until_recovered(ratios: Sequence[float]) -> int:
    """Number of the first turn with the hits back, from 1; one more than there are if none has."""
    numbered = enumerate(ratios, start=1)
    return next((turn for turn, ratio in numbered if ratio >= RECOVERED), len(ratios) + 1)
