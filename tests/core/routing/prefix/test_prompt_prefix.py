"""Hashes of the beginnings of prompts."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.routing.prefix.prompt_prefix import (
    BOUNDARIES,
    FIRST_STEP_BYTES,
    LAST_BYTES,
    NO_PREFIX,
    STEP_FRACTION,
    hash_text,
)


def shared(one, other):
    """Bytes up to the last boundary where the hashes of two prompts are equal."""
    pairs = zip(one.hashes, other.hashes, one.ends, strict=False)
    return max((end for a, b, end in pairs if a == b), default=0)


@given(st.binary(max_size=9000), st.binary(max_size=5000), st.binary(max_size=5000))
def test_equal_beginnings_have_equal_hashes(beginning, one, other):
    first, second = beginning + one, beginning + other
    common = next((n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    common = min(len(first), len(second)) if common is None else common
    found = shared(hash_text(first), hash_text(second))
    assert found <= common < found + max(FIRST_STEP_BYTES, 2 * STEP_FRACTION * common) + 1


def test_few_hashes_say_where_prompts_of_any_length_part():
    assert len(hash_text(bytes(LAST_BYTES)).hashes) == len(BOUNDARIES) == 130
    assert hash_text(bytes(LAST_BYTES + 9)).length == LAST_BYTES + 9
    assert hash_text(b"short") == NO_PREFIX._replace(length=5)


def test_a_salt_and_an_adapter_share_nothing_with_others():
    plain, salted = hash_text(bytes(1000)), hash_text(bytes(1000), b"tenant")
    assert shared(plain, salted) == shared(plain, plain.with_space("sql")) == 0
    assert plain.with_space("") == plain
    assert (
        plain.with_space("sql")
        == hash_text(bytes(1000)).with_space("sql")
        != plain.with_space("math")
    )
