"""Evaluates Kubernetes label selectors."""

from collections.abc import Mapping

from penstock.core.spec.service import Object


def selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector matches the labels, as in a PodDisruptionBudget: {} matches all, None nothing.

    Expressions may have the operators of node affinity too.
    """
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(name) != value for name, value in wanted.items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or [])


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not value.isdecimal() or not values[0].isdecimal():
                return False
            return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
        case _:
            return False
