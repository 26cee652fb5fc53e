"""Quantities against the parser of the `kubernetes` package."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity as oracle

from penstock.core.formats.quantity import MAX_QUANTITY, parse_quantity

NUMBERS = st.from_regex(r"[+-]?([0-9]{1,6}|[0-9]{1,4}\.[0-9]{0,4}|\.[0-9]{1,4})", fullmatch=True)
SUFFIXES = st.sampled_from(
    ["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
) | st.from_regex(r"[eE][+-]?[0-9]{1,2}", fullmatch=True)  # fmt: skip


@given(NUMBERS, SUFFIXES)
def test_every_form_is_what_the_client_library_makes_of_it(number: str, suffix: str) -> None:
    text = number + suffix
    bounded = max(-MAX_QUANTITY, min(MAX_QUANTITY, oracle(text)))
    assert parse_quantity(text) == pytest.approx(float(bounded), rel=1e-15)


@pytest.mark.parametrize(
    "suffix", ["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-3"]
)
def test_every_suffix_scales_as_the_client_library_has_it(suffix: str) -> None:
    assert parse_quantity(f"1.5{suffix}") == pytest.approx(float(oracle(f"1.5{suffix}")), rel=1e-15)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e3", 1000), ("1E3", 1000), ("1E", 10**18), ("1Pi", 2**50), ("1Ei", 2**60),
        ("100m", 0.1), ("25e-1", 2.5), ("5u", 5e-6), ("5n", 5e-9), ("-1", -1), (".5", 0.5),
        ("1e999999999", float(MAX_QUANTITY)), ("1e-999999999", 0),
    ],
)  # fmt: skip
def test_forms(text: str, expected: float) -> None:
    assert parse_quantity(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "1x", "1e", "1e3Ki", "1 ", "1K", "1mi", "٣", "NaN", "inf", "1_000", "1\n"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)
