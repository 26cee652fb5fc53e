"""Regular expressions for the values of headers (RE2)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import re2

# Longest value that an expression can match, in characters. The worst expression that was found takes 0.4 us
# for each: 1 ms for such a value.
MAX_VALUE_CHARACTERS = 2048
# Most expressions of a route, so that its rules take at most some 30 ms of the gateway for a request.
MAX_EXPRESSIONS = 32
# Memory of a compiled expression. It also bounds how large the expression may be: `[a-z]{1000}` fits.
MAX_MEMORY_BYTES = 1 << 18

_OPTIONS = re2.Options()
_OPTIONS.max_mem = MAX_MEMORY_BYTES
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False  # the error is told to the user


@dataclass(frozen=True, slots=True)
class HeaderPattern:
    """An expression for the whole value of a header. Raises ValueError if it cannot be used.

    The time of a match is linear in the length of the value, whatever the expression is.
    """

    expression: str
    _compiled: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            compiled = re2.compile(self.expression, _OPTIONS)
        except re2.error as error:
            detail = error.args[0] if error.args else error
            reason = detail.decode(errors="replace") if isinstance(detail, bytes) else detail
            message = f"the regular expression {self.expression!r} cannot be used: {reason}"
            raise ValueError(message) from None
        object.__setattr__(self, "_compiled", compiled)

    def matches(self, value: str) -> bool:
        """Whether the whole value matches. One of more than MAX_VALUE_CHARACTERS does not."""
        return len(value) <= MAX_VALUE_CHARACTERS and self._compiled.fullmatch(value) is not None


def check_expressions(rules: Sequence[dict[str, Any]]) -> None:
    """Raise ValueError if the expressions of a ModelRoute's rules cannot be used. rules: of its spec."""
    expressions = [
        (rule.get("name", ""), header["value"])
        for rule in rules
        for match in rule.get("matches", [])
        for header in match.get("headers", [])
        if header.get("type") == "RegularExpression"
    ]
    if len(expressions) > MAX_EXPRESSIONS:
        message = (
            f"the rules have {len(expressions)} regular expressions, and a route may have {MAX_EXPRESSIONS}: "
            "use fewer, or divide the route"
        )
        raise ValueError(message)
    for rule, expression in expressions:
        try:
            HeaderPattern(expression)
        except ValueError as error:
            raise ValueError(f"rule {rule}: {error}") from None
