"""Another model name in the body of a request."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.model_field import MAX_PLACES, replace_model

NESTED = b'{"x": {"model": "chat"}}, '


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"chat"}', b'{"model":"a\\"b"}'),
        (b'{ "n": 1.0,\n "model" :\t"chat" , "t": "\xc3\xa9"}',
         b'{ "n": 1.0,\n "model" :\t"a\\"b" , "t": "\xc3\xa9"}'),
        (b'{"x": {"model": "chat"}, "model": "chat"}', b'{"x": {"model": "chat"}, "model": "a\\"b"}'),
        (b'{"model": "chat", "x": {"model": "chat"}}', b'{"model": "a\\"b", "x": {"model": "chat"}}'),
        (b'{"model": "first", "model": "chat"}', b'{"model": "first", "model": "a\\"b"}'),
        (b'{"\\"model": "chat", "model": "chat"}', b'{"\\"model": "chat", "model": "a\\"b"}'),
        (b'{"x": "\\"model\\": \\"chat\\"", "model": "ch\\u0061t"}',
         b'{"x": "\\"model\\": \\"chat\\"", "model": "a\\"b"}'),
    ],
)  # fmt: skip
def test_only_the_models_name_changes(body, expected):
    assert replace_model(body, "chat", 'a"b') == expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"mod\\u0065l": "chat"}',
        b'{"x": [%s1], "model": "chat"}' % (NESTED * MAX_PLACES),
    ],
)
def test_rare_forms_are_written_anew(body):
    replaced = json.loads(replace_model(body, "chat", "other"))
    assert replaced == json.loads(body) | {"model": "other"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("chat"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.just("model"), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(st.text(max_size=3), VALUES, max_size=4),
    st.dictionaries(st.text(max_size=3), VALUES, max_size=4),
    st.text(),
    st.booleans(),
)
def test_replaced_body_is_the_same_but_for_the_model(before, after, new, ascii_only):
    before.pop("model", None)
    body = before | {"model": "chat"} | {k: v for k, v in after.items() if k != "model"}
    text = json.dumps(body, ensure_ascii=ascii_only)
    replaced = replace_model(text.encode(), "chat", new)
    assert json.loads(replaced) == body | {"model": new}
