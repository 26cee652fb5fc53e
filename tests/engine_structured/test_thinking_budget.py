"""Tests of the reasoning budget: when the closing tag is forced, rollback, and grammars."""

from typing import Any

from penstock_engine.core.constraint import Constraint
from penstock_engine.structured.grammar import after_reasoning, choice_grammar, lark_string
from penstock_engine.structured.thinking_budget import MAX_ROLLBACK_TOKENS, ThinkingBudget
from penstock_engine.text.tokens import Tokenizer


def budget(
    tokenizer: Tokenizer, num_tokens: int, *, is_open: bool, grammar: Constraint | None = None
) -> ThinkingBudget:
    return ThinkingBudget(
        grammar,
        lambda token_id: tokenizer.decode([token_id], skip_special_tokens=False),
        tuple(tokenizer.encode("</think>", add_special_tokens=False)),
        num_tokens=num_tokens,
        is_open=is_open,
    )


def accept(constraint: Constraint, tokenizer: Tokenizer, text: str) -> int:
    """Accepts the tokens of a text and returns their number."""
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert all(constraint.accept(token) for token in tokens)
    return len(tokens)


def accept_forced(compile_now: Any, constraint: Constraint, tokenizer: Tokenizer) -> str:
    """Accepts tokens for as long as only one is allowed, and returns their text."""
    forced: list[int] = []
    while len(allowed := compile_now.allowed(constraint)) == 1:
        forced += allowed
        assert constraint.accept(forced[-1])
    return tokenizer.decode(forced, skip_special_tokens=False)


def test_the_closing_tag_is_forced_once_the_budget_is_used_up(
    compile_now: Any, tokenizer: Tokenizer
) -> None:
    constraint = budget(tokenizer, 3, is_open=True)
    for _ in range(3):
        assert len(compile_now.allowed(constraint)) == compile_now.vocab_size
        accept(constraint, tokenizer, "a")
    assert accept_forced(compile_now, constraint, tokenizer) == "</think>"
    accept(constraint, tokenizer, "abc")
    assert len(compile_now.allowed(constraint)) == compile_now.vocab_size
    assert not constraint.is_finished


def test_white_space_counts_as_reasoning(compile_now: Any, tokenizer: Tokenizer) -> None:
    constraint = budget(tokenizer, 2, is_open=True)
    for _ in range(2):
        assert len(compile_now.allowed(constraint)) == compile_now.vocab_size
        accept(constraint, tokenizer, "\n")
    assert accept_forced(compile_now, constraint, tokenizer) == "</think>"


def test_no_tag_is_forced_in_an_answer_without_reasoning(
    compile_now: Any, tokenizer: Tokenizer
) -> None:
    constraint = budget(tokenizer, 0, is_open=False)
    assert len(compile_now.allowed(constraint)) == compile_now.vocab_size
    accept(constraint, tokenizer, "yes")
    assert len(compile_now.allowed(constraint)) == compile_now.vocab_size
    tagged = budget(tokenizer, 0, is_open=False)
    accept(tagged, tokenizer, "<think>")
    assert accept_forced(compile_now, tagged, tokenizer) == "</think>"


def test_rollback_restores_the_budget(compile_now: Any, tokenizer: Tokenizer) -> None:
    constraint = budget(tokenizer, 2, is_open=True)
    accept(constraint, tokenizer, "a")
    num_tokens = accept(constraint, tokenizer, "b")
    num_tokens += accept(constraint, tokenizer, "</think>yes")
    assert num_tokens <= MAX_ROLLBACK_TOKENS
    constraint.rollback(num_tokens)
    assert len(compile_now.allowed(constraint)) == compile_now.vocab_size
    accept(constraint, tokenizer, "b")
    assert accept_forced(compile_now, constraint, tokenizer) == "</think>"


def test_the_grammar_constrains_the_answer_after_the_forced_tag(
    compile_now: Any, tokenizer: Tokenizer
) -> None:
    grammar = after_reasoning(choice_grammar(["yes"]), None, lark_string("</think>"))
    constraint = budget(tokenizer, 2, is_open=True, grammar=compile_now(grammar))
    accept(constraint, tokenizer, "ab")
    accept(constraint, tokenizer, "c")
    text = accept_forced(compile_now, constraint, tokenizer)
    assert text.startswith("</think>")
    accept(constraint, tokenizer, "yes".removeprefix(text.removeprefix("</think>")))
    assert constraint.is_finished


def test_a_multi_token_character_is_completed_before_the_tag(
    compile_now: Any, tokenizer: Tokenizer
) -> None:
    """Inside a character the grammar allows no tag; the tag is forced right after it."""
    grammar = after_reasoning(choice_grammar(["yes"]), None, lark_string("</think>"))
    constraint = budget(tokenizer, 1, is_open=True, grammar=compile_now(grammar))
    first, *rest = tokenizer.encode("\u4e2d", add_special_tokens=False)
    assert rest, "the tokenizer has the character as one token"
    assert constraint.accept(first)
    assert len(compile_now.allowed(constraint)) > 1
    assert all(constraint.accept(token) for token in rest)
    assert accept_forced(compile_now, constraint, tokenizer).startswith("</think>")
