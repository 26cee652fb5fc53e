"""Parses Kubernetes quantities and durations."""

import re

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
_UNITS_S = {"ms": 1e-3, "s": 1, "m": 60, "h": 3600}


def parse_quantity(text: str) -> float:
    """Parse any Kubernetes quantity: `512Mi` -> 536870912.0. Raises ValueError."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, exponent, suffix = match[1], match[2], match[3] or ""
    if suffix in _BINARY:
        value = float(number) * 2.0 ** _BINARY[suffix]
    else:
        value = float(f"{number}e{exponent or _DECIMAL[suffix]}")
    return max(-float(MAX_QUANTITY), min(value, float(MAX_QUANTITY)))


def is_quantity(text: str) -> bool:
    """Whether Kubernetes accepts the text as a quantity."""
    return bool(re.fullmatch(QUANTITY_PATTERN, text, re.ASCII))


def parse_duration_s(text: str) -> float:
    """Parse a duration to seconds: `1m30s` -> 90.0. Raises ValueError."""
    if not re.fullmatch(DURATION_PATTERN, text, re.ASCII):
        raise ValueError(f"{text!r} is not a duration, such as 10s or 1m30s")
    return sum(float(n) * _UNITS_S[unit] for n, unit in re.findall(r"([0-9]+)(ms|s|m|h)", text))
