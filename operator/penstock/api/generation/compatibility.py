"""Decides which changes of a CRD's schema can break stored objects, manifests or clients.

A change that cannot is an addition: an optional field without a schema default, a further enum value, a
wider bound, a rule less. Every other change needs an exception, which says why it is safe.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from penstock.api.generation.golden import NAMES, Facts, Fields

EXCEPTIONS = "compatibility.yaml"

# Bounds that are tighter when they are greater, and those that are tighter when they are smaller.
_LOWER = ("minimum", "minLength", "minItems")
_UPPER = ("maximum", "maxLength", "maxItems", "maxProperties")
# Facts of which any change is breaking.
_FIXED = (
    "listType", "listMapKeys", "kind", "plural", "specReplicasPath", "statusReplicasPath",
    "labelSelectorPath",
)  # fmt: skip
_WIDER_TYPES = {("integer", "int-or-string"), ("string", "int-or-string"), ("integer", "number")}
_NONE = object()


@dataclass(frozen=True, slots=True)
class BreakingChange:
    """A change that can break a user. change: what changed, as in an exception; reason: whom it breaks."""

    kind: str
    path: str
    change: str
    reason: str

    def message(self) -> str:
        """Error text for the developer, which ends with the exception to copy."""
        entry = {"kind": self.kind, "path": self.path, "change": self.change, "why": ""}
        text: str = yaml.safe_dump([entry], sort_keys=False, width=1000)
        return (
            f"{self.kind} {self.path}: {self.change}. {self.reason}\n"
            f"Undo the change, or say in {EXCEPTIONS} why it is safe:\n{text}"
        )


@dataclass(frozen=True, slots=True)
class Exceptions:
    """Breaking changes that are accepted. Each one is (kind, path, change)."""

    accepted: frozenset[tuple[str, str, str]]

    @classmethod
    def parse(cls, text: str) -> "Exceptions":
        """Read a compatibility list. Raises ValueError for an entry without its four fields."""
        entries = yaml.safe_load(text) or []
        for entry in entries:
            if not isinstance(entry, dict) or entry.keys() != {"kind", "path", "change", "why"}:
                raise ValueError(f"{EXCEPTIONS}: {entry}: must have kind, path, change and why")
            if not str(entry["why"] or "").strip():
                raise ValueError(f"{EXCEPTIONS}: {entry['path']}: `why` must say why it is safe")
        return cls(frozenset((e["kind"], e["path"], e["change"]) for e in entries))

    def allow(self, change: BreakingChange) -> bool:
        return (change.kind, change.path, change.change) in self.accepted


def breaking_changes(kind: str, old: Fields, new: Fields) -> list[BreakingChange]:
    """All breaking changes from an old schema to a new one, by path."""
    return [
        BreakingChange(kind, path, change, reason)
        for path in sorted(old.keys() | new.keys())
        for change, reason in _changes(path, old, new)
    ]


def _changes(path: str, old: Fields, new: Fields) -> Iterator[tuple[str, str]]:
    """The breaking changes of one path, as (change, reason)."""
    if path not in new:
        if not any(parent in old and parent not in new for parent in _parents(path)):
            yield "removed", "Manifests that set it lose it without an error, as after a rename."
    elif path not in old:
        yield from _of_new_field(path, old, new[path])
    else:
        yield from _narrowed(old[path], new[path])
        yield from _other_default(old[path], new[path])


def _of_new_field(path: str, old: Fields, facts: Facts) -> Iterator[tuple[str, str]]:
    parents = _parents(path)
    if facts.get("required") and (not parents or parents[-1] in old):
        yield "new and required", "Objects without it are refused at their next write."
    if "default" in facts:
        yield (
            f"new with the schema default {_text(facts['default'])}",
            "The API server stores it in every object, and it can never improve. "
            "Let the operator apply it.",
        )


def _narrowed(old: Facts, new: Facts) -> Iterator[tuple[str, str]]:
    was, now = old.get("type"), new.get("type")
    if was != now and (was, now) not in _WIDER_TYPES:
        yield f"type {was} -> {now}", "Values of the old type are refused."
    if new.get("required") and not old.get("required"):
        yield "now required", "Objects without it are refused at their next write."
    yield from _narrowed_values(old, new)
    yield from _narrowed_bounds(old, new)
    yield from _new_rules(old.get("rules", []), new.get("rules", []))
    if old.get("preserveUnknownFields") and not new.get("preserveUnknownFields"):
        yield "no longer keeps unknown fields", "The API server prunes what users have set."
    for name in _FIXED:
        if old.get(name) != new.get(name):
            yield (
                f"{name} {_text(old.get(name))} -> {_text(new.get(name))}",
                "Clients and patches that go by it stop working.",
            )
    for gone in sorted(set(old.get("shortNames", [])) - set(new.get("shortNames", []))):
        yield f"short name {gone} removed", "Commands that use it stop working."


def _narrowed_values(old: Facts, new: Facts) -> Iterator[tuple[str, str]]:
    """Changes of enum, pattern and format that refuse more values."""
    if "enum" in new and "enum" not in old:
        yield "enum added", "Other values are refused."
    elif "enum" in new:
        for value in [each for each in old["enum"] if each not in new["enum"]]:
            yield f"enum value {value} removed", "Objects with it are refused at their next write."
    had_texts = old.get("type") in ("string", "int-or-string")
    if "pattern" in new and new["pattern"] != old.get("pattern") and had_texts:
        yield (
            f"pattern {old.get('pattern', 'none')} -> {new['pattern']}",
            "It may refuse values that were accepted.",
        )
    was, now = old.get("format"), new.get("format")
    if now is not None and was != now and (was, now) != ("int32", "int64"):
        yield f"format {was or 'none'} -> {now}", "Values outside the new format are refused."


def _narrowed_bounds(old: Facts, new: Facts) -> Iterator[tuple[str, str]]:
    had_texts = old.get("type") in ("string", "int-or-string")
    for name in (*_LOWER, *_UPPER):
        if name not in new or (name.endswith("Length") and not had_texts):
            continue
        sign = 1 if name in _LOWER else -1
        if name not in old or sign * new[name] > sign * old[name]:
            yield (
                f"{name} {old.get(name, 'none')} -> {new[name]}",
                "Values beyond the new bound are refused.",
            )


def _new_rules(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    for rule in [each for each in new if each not in old]:
        yield f"new rule {rule}", "It may refuse objects that were accepted."


def _other_default(old: Facts, new: Facts) -> Iterator[tuple[str, str]]:
    was, now = old.get("default", _NONE), new.get("default", _NONE)
    if was is not now and was != now:
        yield (
            f"default {_text(was)} -> {_text(now)}",
            "Manifests that leave the field out get another behavior.",
        )


def _parents(path: str) -> list[str]:
    """The paths above a path, from the top."""
    marked = path.replace("[]", ".[]")
    parts = marked.split(".")
    return [".".join(parts[:n]).replace(".[]", "[]") for n in range(1, len(parts))]


def _text(value: Any) -> str:
    if value is _NONE or value is None:
        return "none"
    if isinstance(value, str):
        return value
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1000)
    return text.removesuffix("...\n").strip()


def refused_changes(
    golden: Iterable[Fields], generated: Iterable[Fields], exceptions: Exceptions
) -> list[BreakingChange]:
    """The breaking changes without an exception, of all kinds that have a golden schema."""
    now = {_kind(fields): fields for fields in generated}
    changes = [
        change
        for old in golden
        for change in breaking_changes(_kind(old), old, now.get(_kind(old), {}))
    ]
    return [change for change in changes if not exceptions.allow(change)]


def _kind(fields: Fields) -> str:
    return str(fields[NAMES]["kind"])
