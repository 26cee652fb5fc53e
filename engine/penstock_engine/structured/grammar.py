"""Grammars of answers, built and checked for size before they are compiled."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock_engine.structured.schema import rewrite_schema

MAX_GRAMMAR_BYTES = 128 * 2**10
MAX_REGEX_CHARS = 8192
MAX_CHOICES = 4096
MAX_SCHEMA_DEPTH = 60

# Bounded, because models are known to fill their context with white space between JSON tokens.
JSON_OPTIONS = {"whitespace_pattern": r"[ \t\n\r]{1,32}"}


class GrammarError(ValueError):
    """The grammar is invalid, unsatisfiable or too costly. The message is for its author."""


@dataclass(frozen=True, slots=True)
class Subgrammar:
    """A grammar that the main grammar refers to as @name. Kind "grammar" is Lark or GBNF."""

    name: str
    kind: Literal["json", "regex", "grammar"]
    text: str


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar of a whole answer.

    start: Lark expression of the answer. rules: Lark rules that it uses. parts: grammars it refers to.
    """

    start: str
    rules: str = ""
    parts: tuple[Subgrammar, ...] = ()

    @property
    def is_json(self) -> bool:
        """Whether whatever its rules leave to the model is JSON or free text."""
        return bool(self.parts) and all(part.kind == "json" for part in self.parts)


def json_schema_grammar(schema: Any, white_space: str | None = None) -> Grammar:
    """Returns the grammar of the JSON texts that satisfy a schema. Raises GrammarError.

    white_space: regex of the text that may be between the tokens of the JSON; "": none; None: the default.
    """
    return Grammar("@answer", parts=(json_subgrammar("answer", schema, white_space),))


def regex_grammar(pattern: str) -> Grammar:
    """Returns the grammar of the texts that a regex matches entirely, in the syntax of Rust's regex.

    Raises GrammarError.
    """
    if len(pattern) > MAX_REGEX_CHARS:
        raise GrammarError(f"the regex has more than {MAX_REGEX_CHARS} characters")
    return Grammar("@answer", parts=(Subgrammar("answer", "regex", pattern),))


def choice_grammar(choices: Sequence[str]) -> Grammar:
    """Returns the grammar of a list of texts. Raises GrammarError."""
    if not 1 <= len(choices) <= MAX_CHOICES:
        raise GrammarError(f"there must be 1 to {MAX_CHOICES} choices")
    rules = "CHOICE: " + " | ".join(map(lark_string, choices))
    _check_size(rules, "the choices")
    return Grammar("CHOICE", rules)


def ebnf_grammar(text: str) -> Grammar:
    """Returns the grammar given as Lark, or as llama.cpp's GBNF. Raises GrammarError."""
    _check_size(text, "the grammar")
    if not text.strip():
        raise GrammarError("the grammar is empty")
    return Grammar("@answer", parts=(Subgrammar("answer", "grammar", text),))


def json_subgrammar(name: str, schema: Any, white_space: str | None = None) -> Subgrammar:
    """Returns a JSON schema as a named subgrammar. Raises GrammarError.

    white_space: as in json_schema_grammar.
    """
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise GrammarError("the schema must be an object that something can satisfy")
    _check_size(json.dumps(schema, ensure_ascii=False), "the schema")
    _check_schema(schema)
    given = schema.get("x-guidance", {})
    if not isinstance(given, dict):
        raise GrammarError("x-guidance must be an object")
    try:
        schema = rewrite_schema(schema, MAX_GRAMMAR_BYTES)
    except ValueError as error:
        raise GrammarError(str(error)) from error
    given = _white_space_options(white_space) | given
    if given.get("whitespace_flexible", True):  # the pattern would override the other value
        given = JSON_OPTIONS | given
    text = json.dumps({**schema, "x-guidance": given}, ensure_ascii=False)
    _check_size(text, "the schema, with the alternatives that it refers to,")
    return Subgrammar(name, "json", text)


def _white_space_options(white_space: str | None) -> dict[str, Any]:
    if white_space is None:
        return {}
    if len(white_space) > MAX_REGEX_CHARS:
        raise GrammarError(f"whitespace_pattern has more than {MAX_REGEX_CHARS} characters")
    return {"whitespace_pattern": white_space} if white_space else {"whitespace_flexible": False}


def after_reasoning(grammar: Grammar, opening: str | None, closing: str) -> Grammar:
    """Returns the grammar of an answer that follows free reasoning text.

    opening: tag that starts the reasoning, which is then optional; None if the answer begins inside
    reasoning. closing: tag that ends it. Both are Lark: a string, or the id of a special token.
    """
    if closing.startswith("<["):
        reasoning = f"reasoning: /(?s:.*)/ {closing}"
    else:
        reasoning = f"reasoning[suffix={closing}]: /(?s:.*)/"
    prefix = "reasoning" if opening is None else f"({opening} reasoning)?"
    return replace(
        grammar, start=f"{prefix} ({grammar.start})", rules=f"{grammar.rules}\n{reasoning}"
    )


def lark_string(text: str) -> str:
    """Returns the Lark string that stands for a text."""
    return json.dumps(text, ensure_ascii=False)


def _check_size(text: str, what: str) -> None:
    if len(text.encode(errors="replace")) > MAX_GRAMMAR_BYTES:
        raise GrammarError(f"{what} may have {MAX_GRAMMAR_BYTES // 1024} KiB at most")


def _check_schema(schema: dict[str, Any]) -> None:
    for depth, keywords in _iter_objects(schema):
        if depth > MAX_SCHEMA_DEPTH:
            raise GrammarError(f"the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")
        least = keywords.get("minProperties")
        if isinstance(least, int) and least > 1:
            # Keys may repeat, and repeated keys count once.
            raise GrammarError("minProperties above 1 cannot be guaranteed: list them as required")
        pattern = keywords.get("pattern")
        if isinstance(pattern, str) and len(pattern) > MAX_REGEX_CHARS:
            raise GrammarError(f"a pattern has more than {MAX_REGEX_CHARS} characters")


def _iter_objects(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields all objects inside a JSON value with their depth, without recursion."""
    stack = [(1, value)]
    while stack:
        depth, value = stack.pop()
        if isinstance(value, dict):
            yield depth, value
            stack += [(depth + 1, inner) for inner in value.values()]
        elif isinstance(value, list):
            stack += [(depth + 1, inner) for inner in value]
