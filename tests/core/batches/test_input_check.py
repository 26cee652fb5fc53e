"""Checks of input files, in whatever chunks they arrive."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.batches.input_check import MAX_ERRORS, MAX_LINES, InputCheck
from penstock.core.batches.input_line import ENDPOINTS, InputLineError, parse_line
from penstock.core.batches.line_splitter import LineSplitter

PATH = "/v1/completions"
BODY = {"model": "chat", "prompt": "hello"}
LINE: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": PATH, "body": BODY}
DEEP = (
    b'{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"model":"m","x":'
    + b"[" * 200_000
)


def text(**changed: Any) -> bytes:
    return json.dumps(LINE | changed).encode()


def checked(*chunks: bytes) -> InputCheck:
    check = InputCheck(PATH, max_line_bytes=1000)
    for chunk in chunks:
        check.feed(chunk)
    check.close()
    return check


def test_endpoints_are_the_routes_that_compute() -> None:
    assert {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"} <= {
        *ENDPOINTS
    }
    assert not {"/tokenize", "/detokenize", "/v1/messages/count_tokens"} & {*ENDPOINTS}


def test_a_line_becomes_the_body_that_the_gateway_gets() -> None:
    line = parse_line(text(body=BODY | {"stream": False, "n": 10**30}), 7, PATH)
    assert (line.index, line.custom_id, line.model) == (7, "a", "chat")
    assert json.loads(line.body) == BODY | {"stream": False, "n": 10**30}


@pytest.mark.parametrize(
    ("line", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        (b"[]", "invalid_json_line", None),
        (b"\xff\xfe\x00", "invalid_json_line", None),
        (DEEP, "invalid_json_line", None),
        (b'{"a": ' + b"9" * 5000 + b"}", "invalid_json_line", None),
        (text(custom_id=""), "invalid_custom_id", "custom_id"),
        (text(custom_id=7), "invalid_custom_id", "custom_id"),
        (text(custom_id="x" * 513), "invalid_custom_id", "custom_id"),
        (text(method="GET"), "invalid_method", "method"),
        (text(method="post"), "invalid_method", "method"),
        (text(url="/v1/chat/completions"), "mismatched_endpoint", "url"),
        (text(url="/v1/../v1/completions"), "mismatched_endpoint", "url"),
        (text(url="http://other/v1/completions"), "mismatched_endpoint", "url"),
        (text(body="no"), "invalid_body", "body"),
        (text(body=BODY | {"t": float("nan")}), "invalid_body", "body"),
        (text(body=BODY).replace(b'"hello"', b"1e999"), "invalid_body", "body"),
        (text(body={"prompt": "x"}), "missing_model", "body.model"),
        (text(body=BODY | {"model": ["chat"]}), "missing_model", "body.model"),
        (text(body=BODY | {"stream": True}), "stream_not_supported", "body.stream"),
        (text(body=BODY | {"background": True}), "background_not_supported", "body.background"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_line_is_refused(line: bytes, code: str, param: str | None) -> None:
    with pytest.raises(InputLineError) as refused:
        parse_line(line, 0, PATH)
    assert (refused.value.code, refused.value.param) == (code, param)


def test_a_good_file_is_counted() -> None:
    check = checked(text() + b"\n\n  \r\n" + text(custom_id="b"))
    assert (check.errors, check.num_lines, check.model) == ([], 2, "chat")


def test_errors_name_their_line_in_the_file() -> None:
    check = checked(text() + b"\n\nwrong\n" + text() + b"\n" + b"x" * 1001 + b"\n")
    assert [(each.code, each.line) for each in check.errors] == [
        ("invalid_json_line", 3),
        ("duplicate_custom_id", 4),
        ("line_too_long", 5),
    ]


def test_a_file_that_names_several_models_has_none_of_its_own() -> None:
    other = text(custom_id="b", body={"model": "other"})
    assert checked(text() + b"\n" + other).model is None


@pytest.mark.parametrize("content", [b"", b"\n\n", b" \r\n\t"])
def test_a_file_without_requests_is_refused(content: bytes) -> None:
    assert [each.code for each in checked(content).errors] == ["empty_file"]


def test_errors_are_bounded() -> None:
    check = checked(b"wrong\n" * 1000)
    assert len(check.errors) == MAX_ERRORS
    assert check.is_over


def test_ten_million_blank_lines_are_refused_by_their_first_chunks() -> None:
    check = InputCheck(PATH, max_line_bytes=1000)
    chunk, fed = b"\n" * 65536, 0
    while not check.is_over:
        check.feed(chunk)
        fed += 1
    check.close()
    assert fed == 2
    assert [each.code for each in check.errors] == ["too_many_requests"]


def test_too_many_requests_are_refused() -> None:
    lines = b"".join(text(custom_id=str(number)) + b"\n" for number in range(MAX_LINES + 1))
    assert [each.code for each in checked(lines).errors] == ["too_many_requests"]
    assert checked(lines[: lines.rindex(b"\n", 0, -1) + 1]).errors == []


@given(
    st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    st.integers(1, 9),
    st.booleans(),
)
def test_lines_do_not_depend_on_chunks(lines: list[bytes], size: int, ends: bool) -> None:
    content = b"\n".join(lines) + (b"\n" if ends else b"")
    splitter = LineSplitter(8)
    found = []
    for start in range(0, len(content), size):
        found += splitter.feed(content[start : start + size])
    found += splitter.close()
    assert found == [
        (number, line if len(line) <= 8 else None)
        for number, line in enumerate(lines, 1)
        if len(line) > 8 or line.strip()
    ]
