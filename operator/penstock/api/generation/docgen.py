"""Generates the reference pages of the kinds, from the same schemas as the CRDs."""

import re
from typing import Any

from penstock.api.generation.crdgen import crds
from penstock.api.generation.reference_examples import EXAMPLES
from penstock.api.schema.scalars import NAMES, TYPE_RULES
from penstock.core.spec.service import API_VERSION

TABLE = ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]


def files() -> dict[str, str]:
    """File name -> content of every generated page."""
    return {f"{crd['spec']['names']['singular']}.md": _page(crd) for crd in crds()}


def _page(crd: dict[str, Any]) -> str:
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    kind = names["kind"]
    lines = [
        f"# {kind}",
        "",
        f"`{API_VERSION}`, short name `{names['shortNames'][0]}`. Generated from "
        f"`operator/penstock/api/{names['singular']}` by `penstock docs`; do not edit.",
        "",
        "These fields are enough for most objects. All others have defaults. "
        f"`kubectl explain {names['plural']}.spec` shows the same texts.",
        "",
        f"```yaml\n{EXAMPLES[kind]}```",
        "",
    ]
    for part in ("spec", "status"):
        if part in schema["properties"]:
            lines += _part(schema["properties"][part], part)
    lines += ["## Rules", ""]
    lines += [f"- {message}." for message in dict.fromkeys(_messages(schema))]
    return "\n".join(lines) + "\n"


def _part(node: dict[str, Any], part: str) -> list[str]:
    """A table of the fields of the spec or the status, and a section for each one that has fields."""
    lines = [f"## {part}", "", *TABLE]
    sections = []
    for name, child in _required_first(node):
        field = f"{part}.{name}"
        rows = _rows(child, field)
        shown = f"[`{field}`](#{field.replace('.', '').lower()})" if rows else f"`{field}`"
        lines.append(_row(shown, child, is_required=name in node.get("required", [])))
        if rows:
            sections += ["", f"### {field}", "", *TABLE, *rows]
    return [*lines, *sections, ""]


def _rows(node: dict[str, Any], path: str) -> list[str]:
    """Rows of all fields below a field."""
    if node.get("type") == "array":
        return _rows(node["items"], f"{path}[]")
    rows = []
    for name, child in _required_first(node):
        field = f"{path}.{name}"
        rows.append(_row(f"`{field}`", child, is_required=name in node.get("required", [])))
        rows += _rows(child, field)
    return rows


def _required_first(node: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    required = set(node.get("required", []))
    return sorted(node.get("properties", {}).items(), key=lambda each: each[0] not in required)


def _row(shown: str, node: dict[str, Any], *, is_required: bool) -> str:
    meaning, default = _meaning_and_default(node["description"])
    return f"| {shown} | {_type(node)} | {'required' if is_required else default} | {meaning} |"


def _meaning_and_default(description: str) -> tuple[str, str]:
    """The description without the sentence that tells a default of one word, and that word."""
    found = re.fullmatch(r"(.*) Default: (\S+)\.", description)
    return (found[1], f"`{found[2]}`") if found else (description, "")


def _type(node: dict[str, Any]) -> str:
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    for rule in node.get("x-kubernetes-validations", []):
        if rule["rule"] in NAMES:
            return NAMES[rule["rule"]]
    if "additionalProperties" in node:
        return f"map of {_type(node['additionalProperties'])}"
    bounds = [
        f"{sign} {node[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in node
    ]
    return f"{node['type']} {', '.join(bounds)}".strip()


def _meaning(path: str, message: str) -> str:
    """The message of a rule, with the path of its field if the message leaves that out."""
    return f"`{path}` {message}" if message.startswith("must ") else message


def _messages(node: dict[str, Any], path: str = "") -> list[str]:
    """Messages of the rules of a field and of its fields, without those that its type implies."""
    found = [
        _meaning(path, rule["message"])
        for rule in node.get("x-kubernetes-validations", [])
        if rule["rule"] not in TYPE_RULES
    ]
    for name, child in node.get("properties", {}).items():
        found += _messages(child, f"{path}.{name}" if path else name)
    if "items" in node:
        found += _messages(node["items"], f"{path}[]")
    return found
