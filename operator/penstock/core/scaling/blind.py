"""Missing metrics: the observations on which a rule cannot decide, and the text that says so."""

from penstock.core.scaling.signals import Missing, Observation


def missing_metrics(seen: Observation, *, uses_gateway: bool) -> str | None:
    """Why a rule cannot decide on an observation; None if it can.

    uses_gateway: the rule needs the gateway's metrics if there is a gateway, and with them no ready engine.
    """
    if uses_gateway and isinstance(seen.gateway, Missing):
        return f"no usable metrics of the gateway ({seen.gateway.reason})"
    if seen.readings:
        return None
    if seen.missing:
        return missing_engines(seen)
    if uses_gateway:
        return "no gateway and no ready engine" if seen.gateway is None else None
    return "no engine is ready"


def missing_engines(seen: Observation) -> str | None:
    """Names the first ready engine without usable metrics; None if all have them."""
    if not seen.missing:
        return None
    first, *others = seen.missing
    more = f" and {len(others)} more" if others else ""
    return f"no usable metrics of {first.who} ({first.reason}){more}"
