"""Regular expressions for the values of headers (RE2)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import re2

# Longest value that an expression can match, in characters. Values that routes are chosen by are names.
MAX_VALUE_CHARACTERS = 512
# Most expressions of a route.
MAX_EXPRESSIONS = 32
# Bound on the instructions of all compiled expressions of a route. `[a-z]{9}` has 11, and `.{1,128}`, which
# includes characters outside ASCII, 1155. With the worst expressions that were found, 4000 instructions take
# 12 ms of the event loop for a value of 512 characters.
MAX_INSTRUCTIONS = 4000
# Memory of a compiled expression.
MAX_MEMORY_BYTES = 1 << 18

_OPTIONS = re2.Options()
_OPTIONS.max_mem = MAX_MEMORY_BYTES
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False  # the ValueError has the reason


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

    @property
    def num_instructions(self) -> int:
        """Size of the compiled expression."""
        size: int = self._compiled.programsize
        return size

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
    num_instructions = 0
    for rule, expression in expressions:
        try:
            num_instructions += HeaderPattern(expression).num_instructions
        except ValueError as error:
            raise ValueError(f"rule {rule}: {error}") from None
    if num_instructions > MAX_INSTRUCTIONS:
        message = (
            f"the regular expressions of the rules have {num_instructions} instructions when they are "
            f"compiled, and those of a route may have {MAX_INSTRUCTIONS}: use shorter repetitions, such as "
            "[a-z]{1,9}"
        )
        raise ValueError(message)
