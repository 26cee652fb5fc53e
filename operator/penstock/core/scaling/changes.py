"""Changes of load or settings that are tried on a decision, for either rule."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.core.scaling.rule import Bounds, Decision


@dataclass(frozen=True, slots=True)
class Change:
    """A changed load or setting, in words, and the decision with it."""

    what: str
    decision: Decision


def numbers(decision: Decision) -> tuple[int, Mapping[str, int]]:
    """All replicas, and those of each variant."""
    return decision.desired, decision.by_variant


def refuse_unknown(given: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Raises ValueError if a setting of `given` is not `known`."""
    if unknown := given.keys() - set(known):
        raise ValueError(f"no setting {sorted(unknown)[0]!r}; there are {', '.join(known)}")


def whole_number(given: Mapping[str, str], name: str, default: int) -> int:
    """The setting as an integer; the default if it is not given. Raises ValueError."""
    try:
        return int(given.get(name, default))
    except ValueError as error:
        raise ValueError(f"{name} must be a whole number, not {given[name]!r}") from error


def changed_bounds(bounds: Bounds, given: Mapping[str, str]) -> Bounds:
    """Bounds with the minReplicas and maxReplicas of `given`. Raises ValueError for impossible ones."""
    changed = replace(
        bounds,
        min_replicas=whole_number(given, "minReplicas", bounds.min_replicas),
        max_replicas=whole_number(given, "maxReplicas", bounds.max_replicas),
    )
    if not 0 < changed.min_replicas <= changed.max_replicas:
        raise ValueError("minReplicas must be at least 1, and not greater than maxReplicas")
    return changed


def bounds_to_try(bounds: Bounds) -> Iterator[dict[str, str]]:
    """Each bound, one more and one less."""
    for step in (1, -1):
        yield {"maxReplicas": str(bounds.max_replicas + step)}
    for step in (1, -1):
        yield {"minReplicas": str(bounds.min_replicas + step)}
