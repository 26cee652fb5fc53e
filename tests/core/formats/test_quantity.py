"""Quantities against the parser of the `kubernetes` package."""

from decimal import ROUND_UP, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity as oracle

from penstock.core.formats.quantity import (
    MAX_QUANTITY,
    canonical_quantity,
    exact_quantity,
    parse_duration_s,
    parse_quantity,
)

NUMBERS = st.from_regex(r"[+-]?([0-9]{1,6}|[0-9]{1,4}\.[0-9]{0,4}|\.[0-9]{1,4})", fullmatch=True)
SUFFIXES = st.sampled_from(
    ["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
) | st.from_regex(r"[eE][+-]?[0-9]{1,2}", fullmatch=True)  # fmt: skip


def rounded_up(value: Decimal) -> Decimal:
    """Kubernetes keeps nine digits after the point, and rounds away from zero."""
    return Decimal(value).quantize(Decimal("1e-9"), ROUND_UP, Context(prec=100))


@given(NUMBERS, SUFFIXES)
def test_every_form_is_what_the_client_library_makes_of_it(number: str, suffix: str) -> None:
    text = number + suffix
    bounded = rounded_up(max(-MAX_QUANTITY, min(MAX_QUANTITY, oracle(text))))
    assert parse_quantity(text) == pytest.approx(float(bounded), rel=1e-15)


@pytest.mark.parametrize(
    "suffix", ["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-3"]
)
def test_every_suffix_scales_as_the_client_library_has_it(suffix: str) -> None:
    expected = float(rounded_up(oracle(f"1.5{suffix}")))
    assert parse_quantity(f"1.5{suffix}") == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e3", 1000), ("1E3", 1000), ("1E", 10**18), ("1Pi", 2**50), ("1Ei", 2**60),
        ("100m", 0.1), ("25e-1", 2.5), ("5u", 5e-6), ("5n", 5e-9), ("-1", -1), (".5", 0.5),
        ("1e999999999", float(MAX_QUANTITY)), ("1e-999999999", 1e-9),
        ("-1e-10", -1e-9), ("0.1n", 1e-9), ("1n", 1e-9),
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


def test_quantities_are_told_apart_that_no_double_can() -> None:
    assert exact_quantity("9007199254740993") > exact_quantity("9007199254740992")
    assert exact_quantity("1.0000000000000000001") == exact_quantity("1.000000001")


def test_the_parts_of_a_duration_add_up_exactly() -> None:
    for ms in range(1000, 10_000):
        assert parse_duration_s(f"{ms}ms{10_000 - ms}ms") == 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2048Mi", "2Gi"), ("2147483648", "2Gi"), ("2Gi", "2Gi"), ("1.5Gi", "1536Mi"), ("4G", "4G"),
        ("0.5", "500m"), ("1000m", "1"), ("2.0", "2"), ("+1", "1"), ("1e3", "1k"), ("1500m", "1500m"),
        ("0", "0"), ("0Gi", "0"), ("-1.0", "-1"), ("0.1n", "1n"), ("1e999", str(MAX_QUANTITY)),
    ],
)  # fmt: skip
def test_canonical_text_of_a_quantity(text: str, expected: str) -> None:
    assert canonical_quantity(text) == expected


@given(NUMBERS, SUFFIXES)
def test_the_canonical_text_has_the_same_value(number: str, suffix: str) -> None:
    canonical = canonical_quantity(number + suffix)
    assert exact_quantity(canonical) == exact_quantity(number + suffix)
    assert canonical_quantity(canonical) == canonical


def test_a_malformed_quantity_has_no_canonical_text() -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        canonical_quantity("2 Gi")
