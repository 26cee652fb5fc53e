"""Regular expressions for headers: what they match, and which are refused."""

import pytest

from penstock.core.routing.header_pattern import (
    MAX_EXPRESSIONS,
    MAX_VALUE_CHARACTERS,
    HeaderPattern,
    check_expressions,
)
from penstock.core.routing.route_match import Match, RoutedRequest


def rule(*expressions):
    headers = [
        {"name": f"x-{n}", "type": "RegularExpression", "value": each}
        for n, each in enumerate(expressions)
    ]
    return {"name": "beta", "matches": [{"headers": headers}]}


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ("team-(a|b)", "team-a", True),
        ("team-(a|b)", "team-ab", False),
        ("team-(a|b)", "my team-a", False),
        ("^a$|b", "b", True),
        ("(?i)m.ller", "Müller", True),
        ("a*", "", True),
        ("a.c", "a\nc", False),
    ],
)
def test_the_whole_value_matches(expression, value, expected):
    assert HeaderPattern(expression).matches(value) is expected


def test_a_value_that_is_too_long_matches_nothing():
    pattern = HeaderPattern("a+")
    assert pattern.matches("a" * MAX_VALUE_CHARACTERS)
    assert not pattern.matches("a" * (MAX_VALUE_CHARACTERS + 1))


def test_an_expression_on_which_backtracking_takes_ages_ends():
    """Python's own `re` takes twice as long with each further character: years for 100 of them."""
    assert not HeaderPattern("(a+)+$").matches("a" * (MAX_VALUE_CHARACTERS - 1) + "!")


def test_a_header_that_is_absent_matches_no_expression():
    match = Match(header_patterns=(("x-team", HeaderPattern(".*")),))
    assert match.holds(RoutedRequest(headers={"x-team": ""}))
    assert not match.holds(RoutedRequest())


@pytest.mark.parametrize("expression", ["(a", r"(a)\1", "(?=a)", r"\p{L}{1000}"])
def test_what_re2_cannot_match_is_refused_with_the_rule(expression):
    with pytest.raises(
        ValueError, match=r"^rule beta: the regular expression '.*' cannot be used: "
    ):
        check_expressions([rule("a", expression)])


def test_the_compiled_expressions_of_a_route_are_bounded_together():
    check_expressions([rule("(a?){900}", "(b?){900}")])
    with pytest.raises(ValueError, match=r"have 5412 instructions .* may have 4000: use shorter"):
        check_expressions([rule("(a?){900}", "(b?){900}"), rule("(c?){900}")])


def test_a_route_has_a_bounded_number_of_expressions():
    check_expressions([rule(*["a"] * MAX_EXPRESSIONS)])
    with pytest.raises(ValueError, match="33 regular expressions, and a route may have 32"):
        check_expressions([rule(*["a"] * MAX_EXPRESSIONS), rule("b")])
