"""What an answer must look like: checked and capped before anything is compiled."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

MAX_GRAMMAR_BYTES = 128 * 2**10
MAX_REGEX_CHARS = 8192
MAX_CHOICES = 4096
MAX_SCHEMA_DEPTH = 60

# Endless white space between tokens of JSON is a known way for a model to fill its context.
JSON_OPTIONS = {"whitespace_pattern": r"[ \t\n\r]{1,32}"}


class GrammarRefused(ValueError):
    """Nothing can be made to fit this grammar. The message says why, in words for its author."""


@dataclass(frozen=True, slots=True)
class Part:
    """A grammar that another one names as @name. grammar: Lark or GBNF."""

    name: str
    kind: Literal["json", "regex", "grammar"]
    text: str


@dataclass(frozen=True, slots=True)
class Grammar:
    """start: a Lark expression for the whole answer; rules: Lark that it uses."""

    start: str
    rules: str = ""
    parts: tuple[Part, ...] = ()


def of_schema(schema: Any) -> Grammar:
    """Raises GrammarRefused."""
    return Grammar("@answer", parts=(json_part("answer", schema),))


def of_regex(pattern: str) -> Grammar:
    """Of the whole answer, in the linear-time syntax of Rust's regex. Raises GrammarRefused."""
    if len(pattern) > MAX_REGEX_CHARS:
        raise GrammarRefused(f"the regex has more than {MAX_REGEX_CHARS} characters")
    return Grammar("@answer", parts=(Part("answer", "regex", pattern),))


def of_choices(choices: Sequence[str]) -> Grammar:
    """Raises GrammarRefused."""
    if not 1 <= len(choices) <= MAX_CHOICES:
        raise GrammarRefused(f"there must be 1 to {MAX_CHOICES} choices")
    rules = "CHOICE: " + " | ".join(map(literal, choices))
    _cap(rules, "the choices")
    return Grammar("CHOICE", rules)


def of_rules(text: str) -> Grammar:
    """Lark, or GBNF as llama.cpp has it. Raises GrammarRefused."""
    _cap(text, "the grammar")
    if not text.strip():
        raise GrammarRefused("the grammar is empty")
    return Grammar("@answer", parts=(Part("answer", "grammar", text),))


def json_part(name: str, schema: Any) -> Part:
    """Raises GrammarRefused."""
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise GrammarRefused("the schema must be an object that something can satisfy")
    _check(schema)
    given = schema.get("x-guidance", {})
    if not isinstance(given, dict):
        raise GrammarRefused("x-guidance must be an object")
    text = json.dumps({**schema, "x-guidance": JSON_OPTIONS | given}, ensure_ascii=False)
    _cap(text, "the schema")
    return Part(name, "json", text)


def after_thought(grammar: Grammar, opening: str | None, closing: str) -> Grammar:
    """The same after any text up to `closing`, which counts only after `opening` unless None.

    Both are Lark: a string, or the number of a special token.
    """
    if closing.startswith("<["):
        thought = f"thought: /(?s:.*)/ {closing}"
    else:
        thought = f"thought[suffix={closing}]: /(?s:.*)/"
    prefix = "thought" if opening is None else f"({opening} thought)?"
    return replace(
        grammar, start=f"{prefix} ({grammar.start})", rules=f"{grammar.rules}\n{thought}"
    )


def literal(text: str) -> str:
    """A text as Lark writes it."""
    return json.dumps(text, ensure_ascii=False)


def _cap(text: str, what: str) -> None:
    if len(text.encode(errors="replace")) > MAX_GRAMMAR_BYTES:
        raise GrammarRefused(f"{what} may have {MAX_GRAMMAR_BYTES // 1024} KiB at most")


def _check(schema: dict[str, Any]) -> None:
    for depth, keywords in _objects(schema):
        if depth > MAX_SCHEMA_DEPTH:
            raise GrammarRefused(f"the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")
        least = keywords.get("minProperties")
        if isinstance(least, int) and least > 1:
            # Keys may repeat, and repeated keys count once.
            raise GrammarRefused(
                "minProperties above 1 cannot be guaranteed: list them as required"
            )
        pattern = keywords.get("pattern")
        if isinstance(pattern, str) and len(pattern) > MAX_REGEX_CHARS:
            raise GrammarRefused(f"a pattern has more than {MAX_REGEX_CHARS} characters")


def _objects(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """All objects within a JSON value and how deep each lies, without recursion."""
    stack = [(1, value)]
    while stack:
        depth, value = stack.pop()
        if isinstance(value, dict):
            yield depth, value
            stack += [(depth + 1, inner) for inner in value.values()]
        elif isinstance(value, list):
            stack += [(depth + 1, inner) for inner in value]
