"""Tests of grammar constraints: fill, accept, rollback, and the end of the answer."""

import random
import re
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_engine.structured.grammar import (
    after_reasoning,
    choice_grammar,
    json_schema_grammar,
    lark_string,
    regex_grammar,
)
from penstock_engine.text.tokens import Tokenizer

ENDS = frozenset({0, 2})  # end-of-sequence tokens of the tiny model: <|endoftext|>, <|im_end|>
# Digits are listed instead of \d, because llguidance and Python may know different Unicode versions.
PATTERNS = (r"[a-c]{2,4}(x|yz)*", r"the (engine|gateway)s?", "[0-9\u0660-\u0669]+\\.[0-9]{2}")


def test_the_constraint_is_finished_when_the_grammar_is_complete(
    compile_now: Any, tokenizer: Tokenizer
) -> None:
    constraint = compile_now(choice_grammar(["ab", "abc"]))
    for token in tokenizer.encode("ab"):
        assert not constraint.is_finished
        assert token in compile_now.allowed(constraint)
        assert constraint.accept(token)
    assert not constraint.is_finished
    assert compile_now.allowed(constraint) == ENDS | set(tokenizer.encode("c"))
    constraint.accept(tokenizer.encode("c")[0])
    assert constraint.is_finished
    assert not constraint.accept(5)
    assert constraint.accept(2)
    constraint.rollback(2)
    assert not constraint.is_finished
    assert constraint.accept(0)
    assert constraint.is_finished


def test_a_regex_shorthand_allows_its_class_only(compile_now: Any, tokenizer: Tokenizer) -> None:
    allowed = compile_now.allowed(compile_now(regex_grammar(r"\d")))
    assert {token for digit in "0123456789" for token in tokenizer.encode(digit)} <= allowed
    assert allowed.isdisjoint(token for other in "ax_ ." for token in tokenizer.encode(other))


def test_padding_columns_and_special_tokens_are_never_allowed(
    compile_now: Any, tokenizer: Tokenizer
) -> None:
    free = compile_now.allowed(compile_now(regex_grammar("(?s:.*)")))
    assert max(free) < tokenizer.vocab_size < compile_now.vocab_size
    assert tokenizer.special_tokens["<|im_start|>"] not in free


def test_no_token_is_allowed_once_a_limit_is_reached(compile_now: Any) -> None:
    """The grammar is marked as exhausted, so that the compiler compiles it again."""
    compiled = compile_now.compile(regex_grammar("[ab]{90}(.{1,1000}){1,1000}"))
    constraint = compiled.new_constraint()
    rng = random.Random(0)
    for _ in range(500):
        assert not constraint.has_failed
        tokens = compile_now.allowed(constraint) - ENDS
        if not tokens:
            break
        assert constraint.accept(rng.choice(sorted(tokens)))
    assert constraint.has_failed
    assert compiled.is_exhausted
    assert not constraint.accept(2)
    assert not constraint.is_finished


def test_a_string_with_distant_bounds_may_have_any_length_between_them(
    compile_now: Any, tokenizer: Tokenizer
) -> None:
    """The schema needs more lexer states than the limit, at which drafts can be rolled back."""
    schema = {"type": "string", "minLength": 30_000, "maxLength": 40_000}
    compiled = compile_now.compile(json_schema_grammar(schema))
    compile_again = Mock(side_effect=compiled.compile_again)
    compiled.compile_again = compile_again
    constraint = compiled.new_constraint()
    quote, word = tokenizer.encode('"'), tokenizer.encode(" engine the word")
    for token in quote:
        assert constraint.accept(token)
    num_chars = 0
    while num_chars + len(" engine the word") <= 30_000:
        for token in word:
            allowed = compile_now.allowed(constraint)
            assert {word[0], quote[0]} & allowed == {word[0]}
            assert token in allowed
            assert constraint.accept(token)
        constraint.rollback(len(word))
        assert all(constraint.accept(token) for token in word)
        num_chars += len(" engine the word")
    assert compile_again.called
    assert not constraint.has_failed
    for token in tokenizer.encode(" " * (30_000 - num_chars)):
        assert constraint.accept(token)
    assert quote[0] in compile_now.allowed(constraint)


@pytest.mark.parametrize("opening", [None, "<think>"])
def test_reasoning_is_free_and_the_answer_is_constrained(
    compile_now: Any, tokenizer: Tokenizer, opening: str | None
) -> None:
    grammar = after_reasoning(
        choice_grammar(["yes"]), opening and lark_string(opening), lark_string("</think>")
    )
    text = f"{opening or ''} any {{ <x> </thin \n</think>yes"
    constraint = compile_now(grammar)
    for token in tokenizer.encode(text):
        assert not constraint.is_finished
        assert constraint.accept(token)
    assert constraint.is_finished
    other = compile_now(grammar)
    accepted = [other.accept(token) for token in tokenizer.encode(text.replace("yes", "no"))]
    assert not accepted[-1]
    direct = compile_now(grammar)
    accepted = [direct.accept(token) for token in tokenizer.encode("yes")]
    assert direct.is_finished == (opening is not None)


def test_a_special_token_can_end_the_reasoning(compile_now: Any, tokenizer: Tokenizer) -> None:
    start = tokenizer.special_tokens["<|im_start|>"]
    constraint = compile_now(after_reasoning(choice_grammar(["yes"]), None, f"<[{start}]>"))
    for token in [*tokenizer.encode("hm <|im"), start, *tokenizer.encode("yes")]:
        assert constraint.accept(token)
    assert constraint.is_finished


SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "array", "items": {"enum": ["x", "yy"]}},
        "b": {"type": "integer"},
    },
    "required": ["a"],
    "additionalProperties": False,
}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rollback_restores_the_mask(compile_now: Any, data: st.DataObject) -> None:
    """Masks depend on the kept tokens only, not on tokens that were rolled back between them."""
    constraint, straight = (
        compile_now(json_schema_grammar(SCHEMA)),
        compile_now(json_schema_grammar(SCHEMA)),
    )
    path: list[int] = []
    for _ in range(data.draw(st.integers(1, 25))):
        tokens = sorted(compile_now.allowed(constraint))
        tries: list[int] = []
        for _ in range(data.draw(st.integers(0, 3))):
            if constraint.is_finished:
                break
            options = sorted(compile_now.allowed(constraint))
            tries.append(data.draw(st.sampled_from(options)))
            assert constraint.accept(tries[-1])
        assert not tries or not constraint.accept(1)
        constraint.rollback(len(tries))
        assert sorted(compile_now.allowed(constraint)) == tokens
        path.append(data.draw(st.sampled_from(tokens)))
        assert constraint.accept(path[-1])
        assert straight.accept(path[-1])
        assert constraint.is_finished == straight.is_finished
        if constraint.is_finished:
            break
    after = compile_now.allowed(straight)
    assert compile_now.allowed(constraint) == after


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_accept_agrees_with_fill(compile_now: Any, data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(PATTERNS))
    constraint = compile_now(regex_grammar(pattern))
    written: list[int] = []
    while not constraint.is_finished:
        tokens = compile_now.allowed(constraint)
        for wrong in data.draw(st.lists(st.integers(0, compile_now.vocab_size - 1), max_size=5)):
            assert wrong in tokens or not constraint.accept(wrong)
        token = data.draw(st.sampled_from(sorted(tokens)))
        assert constraint.accept(token)
        if token in ENDS:
            break
        written.append(token)
        if len(written) > 30:
            return
    assert re.fullmatch(pattern, compile_now.tokenizer.decode(written))
