"""Kubernetes quantities and durations as numbers."""

import re

_SCALES = {
    "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip

QUANTITY_PATTERN = r"^[0-9]+([.][0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"
DURATION_PATTERN = r"^([0-9]+(ms|s|m|h))+$"
_UNITS_S = {"ms": 1e-3, "s": 1, "m": 60, "h": 3600}


def parse_quantity(text: str) -> float:
    """`512Mi` -> 536870912.0. Raises ValueError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)", text)
    if match is None or match[2] not in _SCALES:
        raise ValueError(f"{text!r} is no quantity")
    return float(match[1]) * _SCALES[match[2]]


def parse_duration_s(text: str) -> float:
    """`1m30s` -> 90.0. Raises ValueError."""
    if not re.fullmatch(DURATION_PATTERN, text):
        raise ValueError(f"{text!r} is no duration")
    return sum(float(n) * _UNITS_S[unit] for n, unit in re.findall(r"([0-9]+)(ms|s|m|h)", text))
