"""Another model name in the body of a request."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.apis import model_field
from penstock.gateway.apis.model_field import MAX_MODEL_FIELDS, MODEL, replace_model


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
        (b'{"mod\\u0065l": "chat"}', b'{"mod\\u0065l": "a\\"b"}'),
        (b'{"model": "chat", "\\u006D\\u006f\\u0064\\u0065\\u006c": "chat"}',
         b'{"model": "chat", "\\u006D\\u006f\\u0064\\u0065\\u006c": "a\\"b"}'),
        (b'{"\\\\u006dodel": "chat", "model": "chat"}', b'{"\\\\u006dodel": "chat", "model": "a\\"b"}'),
    ],
)  # fmt: skip
def test_only_the_models_name_changes(body, expected):
    assert replace_model(body, "chat", 'a"b') == expected


def test_a_body_with_many_such_fields_is_validated_once(monkeypatch):
    """Each other field would cost a pass over the body."""
    bodies = []

    class Counting:
        def validate_json(self, body):
            bodies.append(body)
            return MODEL.validate_json(body)

    monkeypatch.setattr(model_field, "MODEL", Counting())
    before = b'{"model": "chat", "x": [%s1], ' % (b'{"\\"model": "chat"}, {"model": "chat"}, ' * 50)

    replaced = replace_model(before + b'"model": "chat", "y": {"model": "chat"}}', "chat", "other")
    assert replaced == before + b'"model": "other", "y": {"model": "chat"}}'
    assert len(bodies) == 1


def test_a_body_with_one_such_field_is_not_validated(monkeypatch):
    monkeypatch.setattr(model_field, "MODEL", None)
    body = b'{"x": {"model": "chat-2"}, "model": "chat"}'
    replaced = replace_model(body, "chat", "other")
    assert replaced == b'{"x": {"model": "chat-2"}, "model": "other"}'


@pytest.mark.parametrize(
    ("num_others", "start", "end"),
    [
        (MAX_MODEL_FIELDS - 1, b'{"model":"other"', b"} "),
        (MAX_MODEL_FIELDS, b'{"model":"chat"', b',"model":"other"}'),
    ],
)
def test_of_more_such_fields_than_the_bound_a_further_one_overrides(num_others, start, end):
    others = b',"x":{"model":"chat"}' * num_others
    replaced = replace_model(b'{"model":"chat"' + others + b"} ", "chat", "other")
    assert replaced == start + others + end
    assert json.loads(replaced)["model"] == "other"


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
