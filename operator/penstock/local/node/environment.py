"""Computes a container's environment variables, command and paths. No I/O."""

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from penstock.core.formats.quantity import parse_quantity
from penstock.core.spec.service import Object

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


class ConfigError(Exception):
    """The container cannot be configured; the text says what is missing."""


def expand(text: str, env: Mapping[str, str]) -> str:
    """Expand $(NAME) as Kubernetes does: unknown names stay unchanged, $$ becomes $."""

    def value(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        return env.get(match.group(1), match.group())

    return _REFERENCE.sub(value, text)


def rewrite_paths(text: str, mounts: Mapping[str, str]) -> str:
    """Replace container paths below a mount by paths of this machine.

    Processes share this machine's mount table, so a container's /models must be named by its real
    folder. mounts: path in the container -> path on this machine.
    """
    if not mounts:
        return text
    # A single pass, so that a replacement is not replaced again.
    paths = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
    pattern = rf"(?<![\w./-])({paths})(?=$|[/:,;=\s\"'])"
    return re.sub(pattern, lambda match: mounts[match.group(1)], text)


def field(pod: Object, path: str) -> str:
    """Return the value of a downward-API field. Raises ConfigError if it is not supported."""
    labeled = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if labeled:
        return str(pod["metadata"].get(labeled[1], {}).get(labeled[2], ""))
    known = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
        "status.podIP": pod.get("status", {}).get("podIP", ""),
        "status.hostIP": pod.get("status", {}).get("hostIP", ""),
    }
    if path not in known:
        raise ConfigError(f"the downward API has no field {path}")
    return str(known[path])


def quantity(text: str) -> Decimal:
    """Parse a Kubernetes quantity exactly. Raises ConfigError."""
    try:
        value = parse_quantity(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return Decimal(value) if value.is_integer() else Decimal(repr(value))


def resource(container: Object, reference: Object) -> str:
    """Evaluate a resourceFieldRef: the amount in units of its divisor, rounded up."""
    bound, name = reference["resource"].split(".", 1)
    amount = container.get("resources", {}).get(bound, {}).get(name)
    if amount is None:
        return "0"
    divisor = quantity(str(reference.get("divisor", "1")) or "1") or Decimal(1)
    return str(int((quantity(str(amount)) / divisor).to_integral_value(ROUND_CEILING)))


def environment(
    container: Object,
    pod: Object,
    service: Mapping[str, str],
    config_maps: Mapping[str, Mapping[str, str]],
    secrets: Mapping[str, Mapping[str, str]],
) -> dict[str, str]:
    """Compute the variables that a pod sets for one container. service: variables of Services, set first.

    Like the kubelet, this expands only `value`, and only with these variables: values from Secrets
    are taken literally, and the machine's own variables are not available. Raises ConfigError.
    """
    env = dict(service)
    for source in container.get("envFrom", []):
        prefix = source.get("prefix", "")
        for kind, values in (("configMapRef", config_maps), ("secretRef", secrets)):
            if kind in source:
                found = _lookup(values, source[kind], kind)
                env |= {prefix + name: value for name, value in (found or {}).items()}
    for entry in container.get("env", []):
        if "valueFrom" in entry:
            value = _value(entry, container, pod, config_maps, secrets)
        else:
            value = expand(str(entry.get("value", "")), env)
        if value is not None:
            env[entry["name"]] = value
    for name, value in env.items():
        if "\0" in value:
            raise ConfigError(
                f"the variable {name} contains a NUL byte, which cannot be passed to a process"
            )
    return env


def _value(
    entry: Object,
    container: Object,
    pod: Object,
    config_maps: Mapping[str, Mapping[str, str]],
    secrets: Mapping[str, Mapping[str, str]],
) -> str | None:
    source = entry["valueFrom"]
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return resource(container, source["resourceFieldRef"])
    for kind, values in (("configMapKeyRef", config_maps), ("secretKeyRef", secrets)):
        if kind in source:
            found = _lookup(values, source[kind], kind)
            if found is not None and source[kind]["key"] in found:
                return found[source[kind]["key"]]
            if source[kind].get("optional"):
                return None
            raise ConfigError(f"{source[kind]['name']} has no key {source[kind]['key']}")
    raise ConfigError(f"the value of {entry['name']} has an unknown source")


def _lookup(
    values: Mapping[str, Mapping[str, str]], reference: Object, kind: str
) -> Mapping[str, str] | None:
    found = values.get(reference["name"])
    if found is None and not reference.get("optional"):
        raise ConfigError(f"{kind} {reference['name']!r} not found")
    return found


def references(pod: Object) -> tuple[set[str], set[str]]:
    """Return the names of the ConfigMaps and Secrets that the containers' environments need."""
    config_maps: set[str] = set()
    secrets: set[str] = set()
    spec = pod["spec"]
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        for source in container.get("envFrom", []):
            config_maps |= {source["configMapRef"]["name"]} if "configMapRef" in source else set()
            secrets |= {source["secretRef"]["name"]} if "secretRef" in source else set()
        for entry in container.get("env", []):
            source = entry.get("valueFrom") or {}
            if "configMapKeyRef" in source:
                config_maps.add(source["configMapKeyRef"]["name"])
            if "secretKeyRef" in source:
                secrets.add(source["secretKeyRef"]["name"])
    return config_maps, secrets
