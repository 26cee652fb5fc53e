"""Golden schema of a CRD: one line for each field, which a person can review and the check compares.

Descriptions are left out, because they may change at any time.
"""

import math
from typing import Any

import yaml

Facts = dict[str, Any]
Fields = dict[str, Facts]

# Pseudo-path of the kind's names.
NAMES = "(names)"

FOLDER = "golden"
NOTE = (
    "# Golden schema of {kind} {version}, written by `penstock crds`; do not edit.\n"
    "# A change that can break objects or clients needs an entry in compatibility.yaml.\n"
)

# Keyword of the schema -> name in the golden file, in the order of a line.
_KEYWORDS = {
    "type": "type", "format": "format", "enum": "enum", "pattern": "pattern", "default": "default",
    "minimum": "minimum", "maximum": "maximum", "minLength": "minLength", "maxLength": "maxLength",
    "minItems": "minItems", "maxItems": "maxItems", "maxProperties": "maxProperties",
    "x-kubernetes-list-type": "listType", "x-kubernetes-list-map-keys": "listMapKeys",
    "x-kubernetes-preserve-unknown-fields": "preserveUnknownFields",
}  # fmt: skip
_ELSEWHERE = {
    "description", "properties", "items", "additionalProperties", "required", "anyOf",
    "x-kubernetes-int-or-string", "x-kubernetes-validations",
}  # fmt: skip


class UnknownKeyword(Exception):
    """A keyword that the golden schema does not hold yet, and the check would miss."""


def fields_of(crd: dict[str, Any]) -> Fields:
    """Path -> facts of every field of a CRD, of its names and of its subresources."""
    spec = crd["spec"]
    (version,) = spec["versions"]
    found = {
        NAMES: {key: spec["names"][key] for key in ("kind", "plural", "shortNames")},
        **{
            f"({name} subresource)": facts
            for name, facts in version.get("subresources", {}).items()
        },
    }
    schema = version["schema"]["openAPIV3Schema"]
    _collect(schema, "", False, found)
    # The items of a list come before fields whose names begin with the list's.
    return dict(sorted(found.items(), key=lambda item: item[0].replace("[", ".[")))


def to_text(crd: dict[str, Any]) -> str:
    """The golden file of a CRD."""
    note = NOTE.format(
        kind=crd["spec"]["names"]["kind"], version=crd["spec"]["versions"][0]["name"]
    )
    lines = [f"{_flow(path)}: {_flow(facts)}\n" for path, facts in fields_of(crd).items()]
    return note + "".join(lines)


def files(crds: list[dict[str, Any]]) -> dict[str, str]:
    """Path -> content of the golden files of CRDs."""
    return {f"{FOLDER}/{crd['spec']['names']['plural']}.yaml": to_text(crd) for crd in crds}


def from_text(text: str) -> Fields:
    """Path -> facts of every field in a golden file."""
    fields: Fields = yaml.safe_load(text)
    return fields


def _collect(node: dict[str, Any], path: str, is_required: bool, found: Fields) -> None:
    """Add the facts of a schema node, and of all nodes below it."""
    found[path or "(object)"] = _facts(node, path, is_required)
    required = node.get("required", [])
    for name, child in node.get("properties", {}).items():
        _collect(child, f"{path}.{name}" if path else name, name in required, found)
    if "items" in node:
        _collect(node["items"], f"{path}[]", False, found)
    if "additionalProperties" in node:
        _collect(node["additionalProperties"], f"{path}.*", False, found)


def _facts(node: dict[str, Any], path: str, is_required: bool) -> Facts:
    unknown = node.keys() - _KEYWORDS.keys() - _ELSEWHERE
    if unknown:
        raise UnknownKeyword(f"{path}: {sorted(unknown)}")
    facts = {name: node[keyword] for keyword, name in _KEYWORDS.items() if keyword in node}
    if node.get("x-kubernetes-int-or-string"):
        facts = {"type": "int-or-string"} | facts
    if is_required:
        facts["required"] = True
    rules = sorted(rule["rule"] for rule in node.get("x-kubernetes-validations", []))
    return facts | ({"rules": rules} if rules else {})


def _flow(value: Any) -> str:
    """YAML of a value on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf)
    return text.removesuffix("...\n").strip()
