"""Tells whether every gateway applies the current traffic generation."""

from collections.abc import Mapping

# Time limit for a lagging gateway. Gateways apply a change within 1 s and are read every
# 2 s; one that still lags hangs or has lost the API server, and must not block a rollback.
GATEWAY_TIMEOUT_S = 30.0
# Interval of checks for lagging gateways.
RECHECK_S = 1.0

# Traffic generation that each gateway applies; None for a gateway that does not answer.
AppliedGenerations = Mapping[str, int | None]


def describe_lagging_gateway(applied: AppliedGenerations | None, generation: int) -> str:
    """A sentence on the first gateway that applies an older generation; empty if there is none.

    applied: None while the gateways are unknown.
    """
    if applied is None:
        return "the gateways are not known yet"
    for name, current in sorted(applied.items()):
        if current is None:
            return f"gateway {name} does not report the traffic generation that it applies"
        if current < generation:
            return f"gateway {name} applies traffic generation {current}, not {generation} yet"
    return ""


def explain_moved_traffic(
    applied: AppliedGenerations | None, generation: int, waited_s: float
) -> str:
    """Why no gateway is waited for any more, in words; empty while one is.

    applied: as for `describe_lagging_gateway`. waited_s: time since the generation was stored.
    """
    lag = describe_lagging_gateway(applied, generation)
    if not lag:
        number = len(applied or ())
        return f"{number} of {number} gateways apply traffic generation {generation}"
    return f"{lag}, after {GATEWAY_TIMEOUT_S:.0f} s" if waited_s >= GATEWAY_TIMEOUT_S else ""
