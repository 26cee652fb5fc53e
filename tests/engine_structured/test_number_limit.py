"""Tests of the limit on the digits of numbers in JSON."""

from typing import Any

import pytest

from penstock_engine.structured.grammar import (
    Grammar,
    ebnf_grammar,
    json_schema_grammar,
    regex_grammar,
)
from penstock_engine.structured.number_limit import MAX_DIGITS
from penstock_engine.text.tokens import Tokenizer

DIGITS = "1" * MAX_DIGITS


def allows_digit(compile_now: Any, tokenizer: Tokenizer, grammar: Grammar, text: str) -> bool:
    """Whether a digit may follow a text. Something must be able to."""
    constraint = compile_now(grammar)
    for token in tokenizer.encode(text, add_special_tokens=False):
        assert constraint.accept(token)
    allowed = compile_now.allowed(constraint)
    assert allowed
    return any(token in allowed for token in tokenizer.encode("1", add_special_tokens=False))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer"}, DIGITS), ({"type": "integer", "minimum": 0}, DIGITS), ({}, DIGITS),
        ({"type": "number"}, f"-{DIGITS}"), ({"type": "number"}, f"0.{DIGITS}"),
        ({"type": "number"}, f"1e+{DIGITS}"), ({"type": "array"}, f"[1, {DIGITS}"),
        ({"type": "object"}, f'{{"a": {DIGITS}'),
    ],
    ids=str,
)  # fmt: skip
def test_a_number_ends_after_a_number_of_digits(
    compile_now: Any, tokenizer: Tokenizer, schema: Any, text: str
) -> None:
    grammar = json_schema_grammar(schema)
    assert allows_digit(compile_now, tokenizer, grammar, text[:-1])
    assert not allows_digit(compile_now, tokenizer, grammar, text)


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (json_schema_grammar({"type": "string"}), f'"{DIGITS}'),
        (json_schema_grammar({"type": "string", "pattern": r"^\d+$"}), f'"{DIGITS}'),
        (json_schema_grammar({"type": "string", "pattern": r"^\d{30}$"}), f'"{DIGITS}'),
        (json_schema_grammar({"type": "object"}), f'{{"{DIGITS}'),
        (json_schema_grammar({"type": "array"}), f"[{DIGITS}, 1"),
        (regex_grammar("[0-9]+"), DIGITS),
        (ebnf_grammar("start: /[0-9]+/"), DIGITS),
    ],
    ids=str,
)
def test_other_digits_have_no_limit(
    compile_now: Any, tokenizer: Tokenizer, grammar: Grammar, text: str
) -> None:
    assert allows_digit(compile_now, tokenizer, grammar, text)
