"""Kubernetes strategic merge patch, for the fields of a pod template that users override."""

from typing import Any

from penstock.core.formats.quantity import parse_quantity

Object = dict[str, Any]

# Lists that merge by the value of a key; every other list is replaced as a whole.
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "hostAliases": "ip",
}


def merge(base: Any, patch: Any, field: str = "") -> Any:
    """Merge `patch` into a copy of `base`; neither argument is modified. A null removes a field."""
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = dict(base)
        for name, value in patch.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = merge(base.get(name), value, name)
        return merged
    key = _MERGE_KEYS.get(field, "")
    if key and is_keyed(base, key) and is_keyed(patch, key):
        return _merge_list(base, patch, key)
    return patch


def is_keyed(value: Any, key: str) -> bool:
    """Whether the value is a list of objects with this key, so that it can be merged by key.

    The CRD schema does not check it; the API server refuses other lists.
    """
    return isinstance(value, list) and all(
        isinstance(item, dict) and isinstance(item.get(key), str | int | None) for item in value
    )


def _merge_list(base: list[Object], patch: list[Object], key: str) -> list[Object]:
    merged = {_identity(item, key): item for item in base}
    for item in patch:
        identity = _identity(item, key)
        if item.get("$patch") == "delete":
            merged.pop(identity, None)
        else:
            merged[identity] = merge(merged.get(identity, {}), item)
    return list(merged.values())


def _identity(item: Object, key: str) -> Any:
    """The value of the key. TCP and UDP ports of one number are different ports."""
    value = item.get(key)
    return (value, str(item.get("protocol") or "TCP")) if key == "containerPort" else value


def covers(live: Any, wanted: Any) -> bool:
    """Whether `live` contains all values of `wanted`; it may contain more.

    The API server adds defaults, drops empty values and normalizes quantities.
    """
    if not wanted:
        return live is None or not live or live == wanted
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(covers(live.get(k), v) for k, v in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(covers(a, b) for a, b in zip(live, wanted, strict=True))
        )
    return bool(live == wanted) or _same_quantity(live, wanted)


def _same_quantity(live: Any, wanted: Any) -> bool:
    try:
        return parse_quantity(str(live)) == parse_quantity(str(wanted))
    except ValueError:
        return False
