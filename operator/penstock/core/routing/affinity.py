"""Types of session affinity: requests with the same key stay on one revision while weights are unchanged."""

from typing import Literal, get_args

# Keys of `RequestAttributes`, user_key or conversation_key, or no affinity.
Affinity = Literal["None", "Conversation", "User"]
AFFINITIES: tuple[Affinity, ...] = get_args(Affinity)


def affinity_of(wanted: str) -> Affinity:
    """Read a type of session affinity; one of a newer API counts as "None"."""
    return next((each for each in AFFINITIES if each == wanted), "None")
