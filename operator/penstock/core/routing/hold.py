"""Time limit of requests that wait for the first engine of a service at zero, and their Retry-After."""

import math

# Longest time that a gateway holds a request for the first engine of a service, in seconds: most engines
# start in it, and the clients of OpenAI's SDK wait for twice as long.
HOLD_S = 300.0


def retry_after_s(startup_s: float, held_s: float) -> int:
    """The `Retry-After` of a request that is no longer held: what is left of the start-up, at least 1 s.

    startup_s: how long a first engine takes. held_s: how long the request was held.
    """
    return max(1, math.ceil(startup_s - held_s))
