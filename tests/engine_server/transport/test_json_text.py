"""Tests of the JSON encoder: its pieces join to what json.dumps returns."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_engine.server.transport import json_text
from penstock_engine.server.transport.json_text import MAX_SCALARS, encode, encode_line, to_text

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip
LONG = [*range(MAX_SCALARS + 1)], [[]] * (2 * MAX_SCALARS), [*range(MAX_SCALARS), {}, 1]


@given(values)
def test_the_text_equals_that_of_json_dumps(value: Any) -> None:
    assert encode_line(value).decode() == json.dumps(value, separators=(",", ":"))
    whole = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    assert encode(value).decode() == whole


@pytest.mark.parametrize("value", LONG, ids=["scalars", "lists", "mixed"])
def test_long_lists_are_encoded_correctly(value: list[Any]) -> None:
    assert json.loads(encode({"x": value, "y": tuple(value)})) == {"x": value, "y": value}


def test_json_text_is_not_encoded_again() -> None:
    entry = {"token": "é\n", "top": [1.5, None]}
    body = {"few": [to_text(entry), None], "one": to_text(entry)}
    for text in (encode(body), encode_line(body)):
        assert json.loads(text) == {"few": [entry, None], "one": entry}
    assert encode_line(body).isascii()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_rejected(number: float) -> None:
    for value in (number, [1, number], {"x": [{"y": number}]}):
        with pytest.raises(ValueError, match="not JSON compliant"):
            encode(value)


def test_encoder_calls_do_not_grow_with_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder holds the GIL, so each of its calls must be short."""
    sizes: list[int] = []
    encoder = json_text._utf8

    class SizeRecordingEncoder(json.JSONEncoder):
        def encode(self, o: Any) -> str:
            text = encoder.encode(o)
            sizes.append(len(text))
            return text

    monkeypatch.setattr(json_text, "_utf8", SizeRecordingEncoder())
    entry = to_text({"token": "x", "top_logprobs": [{"token": "y"}] * 20})
    encode({"content": [entry] * 10_000, "ids": [12345] * 100_000})
    assert len(sizes) > 90
    assert max(sizes) <= 8 * MAX_SCALARS
