"""The place of an answer in its grammar: fill, accept, rollback, the end."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_engine.structured.constraint import Compiled, GrammarConstraint
from penstock_engine.structured.grammar import (
    Grammar,
    after_thought,
    literal,
    of_choices,
    of_regex,
    of_schema,
)
from penstock_engine.structured.limits import make_matcher, make_tokenizer
from penstock_engine.structured.worker import answer
from penstock_engine.tokens import Tokenizer

E = frozenset({0, 2})  # the ends of the tiny model: <|endoftext|> and <|im_end|>


class Compile:
    """Without a process."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocab_size = -(-tokenizer.vocab_size // 64) * 64
        self._tokenizer = make_tokenizer(tokenizer.to_json(), self.vocab_size, E)

    def decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode_str(tokens)

    def __call__(self, grammar: Grammar) -> GrammarConstraint:
        parts = [{"name": p.name, "kind": p.kind, "text": p.text} for p in grammar.parts]
        job = {"start": grammar.start, "rules": grammar.rules, "parts": parts}
        return Compiled(
            make_matcher(self._tokenizer, answer(job, self._tokenizer)["text"]), E
        ).constraint()


@pytest.fixture(scope="module")
def compile_now(tokenizer: Tokenizer) -> Compile:
    return Compile(tokenizer)


def allowed(constraint: GrammarConstraint, vocab_size: int) -> set[int]:
    bits = bytearray(-(-vocab_size // 32) * 4)
    constraint.fill(memoryview(bits))
    return {i for i in range(vocab_size) if bits[i >> 3] >> (i & 7) & 1}


def test_an_answer_ends_with_its_grammar(compile_now: Compile, tokenizer: Tokenizer) -> None:
    constraint = compile_now(of_choices(["ab", "abc"]))
    for token in tokenizer.encode("ab"):
        assert not constraint.is_finished
        assert token in allowed(constraint, compile_now.vocab_size)
        assert constraint.accept(token)
    assert not constraint.is_finished
    assert allowed(constraint, compile_now.vocab_size) == E | set(tokenizer.encode("c"))
    constraint.accept(tokenizer.encode("c")[0])
    assert constraint.is_finished
    assert not constraint.accept(5)
    assert constraint.accept(2)
    constraint.rollback(2)
    assert not constraint.is_finished
    assert constraint.accept(0)
    assert constraint.is_finished


def test_no_token_beyond_the_tokenizer(compile_now: Compile, tokenizer: Tokenizer) -> None:
    free = allowed(compile_now(of_regex("(?s:.*)")), compile_now.vocab_size)
    assert max(free) < tokenizer.vocab_size < compile_now.vocab_size
    assert tokenizer.special_tokens["<|im_start|>"] not in free


def test_where_the_limits_are_met_nothing_can_be_drawn(compile_now: Compile) -> None:
    """The grammar is then compiled anew for others."""
    constraint = compile_now(of_regex("[ab]{90}(.{1,1000}){1,1000}"))
    draw = random.Random(0)
    for _ in range(500):
        tokens = allowed(constraint, compile_now.vocab_size) - E
        if not tokens:
            break
        assert constraint.accept(draw.choice(sorted(tokens)))
    assert constraint._compiled.is_spent
    assert not constraint.accept(2)
    assert not constraint.is_finished


@pytest.mark.parametrize("opening", [None, "<think>"])
def test_thoughts_are_free_and_the_answer_is_not(
    compile_now: Compile, tokenizer: Tokenizer, opening: str | None
) -> None:
    grammar = after_thought(of_choices(["yes"]), opening and literal(opening), literal("</think>"))
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


def test_a_special_token_can_end_a_thought(compile_now: Compile, tokenizer: Tokenizer) -> None:
    start = tokenizer.special_tokens["<|im_start|>"]
    constraint = compile_now(after_thought(of_choices(["yes"]), None, f"<[{start}]>"))
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
def test_rolling_back_is_never_having_been_there(compile_now: Compile, data: st.DataObject) -> None:
    """Masks depend on the tokens that count, however many were tried between them."""
    constraint, straight = compile_now(of_schema(SCHEMA)), compile_now(of_schema(SCHEMA))
    path: list[int] = []
    for _ in range(data.draw(st.integers(1, 25))):
        tokens = sorted(allowed(constraint, compile_now.vocab_size))
        tries: list[int] = []
        for _ in range(data.draw(st.integers(0, 3))):
            if constraint.is_finished:
                break
            options = sorted(allowed(constraint, compile_now.vocab_size))
            tries.append(data.draw(st.sampled_from(options)))
            assert constraint.accept(tries[-1])
        assert not tries or not constraint.accept(1)
        constraint.rollback(len(tries))
        assert sorted(allowed(constraint, compile_now.vocab_size)) == tokens
        path.append(data.draw(st.sampled_from(tokens)))
        assert constraint.accept(path[-1])
        assert straight.accept(path[-1])
        assert constraint.is_finished == straight.is_finished
        if constraint.is_finished:
            break
    after = allowed(straight, compile_now.vocab_size)
    assert allowed(constraint, compile_now.vocab_size) == after


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_what_is_allowed_is_what_is_accepted(compile_now: Compile, data: st.DataObject) -> None:
    pattern = data.draw(
        st.sampled_from([r"[a-c]{2,4}(x|yz)*", r"the (engine|gateway)s?", r"\d+\.\d\d"])
    )
    constraint = compile_now(of_regex(pattern))
    written: list[int] = []
    while not constraint.is_finished:
        tokens = allowed(constraint, compile_now.vocab_size)
        for wrong in data.draw(st.lists(st.integers(0, compile_now.vocab_size - 1), max_size=5)):
            assert wrong in tokens or not constraint.accept(wrong)
        token = data.draw(st.sampled_from(sorted(tokens)))
        assert constraint.accept(token)
        if token in E:
            break
        written.append(token)
        if len(written) > 30:
            return
    assert re.fullmatch(pattern, compile_now.decode(written))
