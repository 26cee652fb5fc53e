"""Parses Kubernetes quantities and durations."""

import re
from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction

# Powers of ten and of two by suffix.
_DECIMAL = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# "1E" is an exa, "1E3" has an exponent.
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)",
    re.ASCII,
)
# Kubernetes caps quantities at this.
MAX_QUANTITY = 2**63 - 1

# Kubernetes quantities, and durations in the Gateway API's format (GEP-2257).
QUANTITY_PATTERN = (
    r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$"
)
DURATION_PATTERN = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
# Enough digits for the product of two quantities.
_EXACT = Context(prec=100)
_NANO = Decimal("1e-9")


def parse_quantity(text: str) -> float:
    """Parse any Kubernetes quantity: `512Mi` -> 536870912.0. Raises ValueError."""
    return float(exact_quantity(text))


def whole_quantity(value: object) -> int:
    """Parse a quantity, rounded down to a whole number: `512Mi` -> 536870912. Raises ValueError.

    value: a string, or a number as YAML reads it.
    """
    return int(parse_quantity(str(value)))


def exact_quantity(text: str) -> Decimal:
    """Parse any Kubernetes quantity as Kubernetes does: rounded away from zero to 1e-9, and capped.

    Raises ValueError.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, exponent, suffix = match[1], match[2], match[3] or ""
    if suffix in _BINARY:
        value = _EXACT.multiply(Decimal(number), Decimal(2 ** _BINARY[suffix]))
    else:
        value = Decimal(f"{number}e{exponent or _DECIMAL[suffix]}")
    capped = max(Decimal(-MAX_QUANTITY), min(value, Decimal(MAX_QUANTITY)))
    return capped.quantize(_NANO, ROUND_UP, _EXACT)


def canonical_quantity(text: str) -> str:
    """The shortest text of the same quantity: `2048Mi` -> `2Gi`, `0.5` -> `500m`. Raises ValueError."""
    value = Fraction(exact_quantity(text))
    factors = {suffix: Fraction(10) ** power for suffix, power in _DECIMAL.items()}
    factors |= {suffix: Fraction(2) ** power for suffix, power in _BINARY.items()}
    counts = {suffix: value / factor for suffix, factor in factors.items()}
    texts = [f"{count}{suffix}" for suffix, count in counts.items() if count.denominator == 1]
    return min(texts, key=len)


def is_quantity(text: str) -> bool:
    """Whether Kubernetes accepts the text as a quantity."""
    return bool(re.fullmatch(QUANTITY_PATTERN, text, re.ASCII))


def parse_duration_s(text: str) -> float:
    """Parse a duration to seconds: `1m30s` -> 90.0. Raises ValueError."""
    if not re.fullmatch(DURATION_PATTERN, text, re.ASCII):
        raise ValueError(f"{text!r} is not a duration, such as 10s or 1m30s")
    parts = re.findall(r"([0-9]+)(ms|s|m|h)", text)
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts) / 1000
