"""Results of lines by their answers, and the lines of result files."""

import json

import pytest

from penstock.core.batches.results import Answer, result_line, unexecuted_line

SUSPENDED = b'{"error": {"code": "tenant_suspended"}}'


@pytest.mark.parametrize(
    ("answer", "is_success", "is_refusal", "is_server_error"),
    [
        (Answer(200, b"{}"), True, False, False),
        (Answer(400, b"{}"), False, False, False),
        (Answer(401, b"{}"), False, True, False),
        (Answer(403, b"{}"), False, False, False),
        (Answer(403, b"no JSON"), False, False, False),
        (Answer(403, b'{"error": "text"}'), False, False, False),
        (Answer(403, SUSPENDED), False, True, False),
        (Answer(404, SUSPENDED), False, False, False),
        (Answer(429, b"{}"), False, True, False),
        (Answer(500, b"{}"), False, False, True),
        (Answer(502, b"{}"), False, False, True),
        (Answer(503, b"{}"), False, True, True),
    ],
)
def test_answers(answer: Answer, is_success: bool, is_refusal: bool, is_server_error: bool) -> None:
    assert answer.is_success == is_success
    assert answer.is_refusal == is_refusal
    assert answer.is_server_error == is_server_error


def test_a_result_is_one_line_of_json() -> None:
    line = result_line("batch_req_1", "a\nb", Answer(200, b'{\n"x": "y\\nz"\n}', "req-7"))
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "id": "batch_req_1",
        "custom_id": "a\nb",
        "response": {"status_code": 200, "request_id": "req-7", "body": {"x": "y\nz"}},
        "error": None,
    }


@pytest.mark.parametrize("body", [b"oops", b"[1]", b"\xff" * 9000, b"[" * 200_000])
def test_an_answer_that_is_no_object_is_a_short_text(body: bytes) -> None:
    made = json.loads(result_line("batch_req_1", "a", Answer(502, body)))["response"]["body"]
    assert made["error"]["code"] == "unreadable_answer"
    assert len(made["error"]["message"]) <= 1000


def test_a_line_that_was_not_executed_says_why() -> None:
    made = json.loads(unexecuted_line("batch_req_1", "a", "batch_expired", "It was late."))
    assert (made["custom_id"], made["response"]) == ("a", None)
    assert made["error"] == {"code": "batch_expired", "message": "It was late."}
