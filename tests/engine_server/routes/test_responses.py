"""Tests of /v1/responses without a store: translation to chat requests and back."""

import json
from typing import Any

import httpx
import pytest

from penstock_engine.contract.wire import SSE_DONE
from penstock_engine.server.answers.deltas import Delta, message_deltas
from penstock_engine.server.handlers.response_store import ResponseStore
from penstock_engine.server.routes.responses.answer import ResponsesDialect
from penstock_engine.server.routes.responses.custom_calls import CustomCalls
from penstock_engine.server.routes.responses.items import as_input, item
from penstock_engine.server.routes.responses.request import ResponsesRequest

ASK = "What is a penstock?"
BODY: dict[str, Any] = {"model": "soup", "input": ASK, "max_output_tokens": 12, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": ASK}], "max_tokens": 12, "temperature": 0}
CALL = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{}"}}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}


def events_of(text: str) -> list[dict[str, Any]]:
    """Returns the data of each event. Names must be types, and sequence numbers must be in order."""
    bodies: list[dict[str, Any]] = []
    for event in text.strip().split("\n\n"):
        name, data = event.split("\n")
        bodies.append(json.loads(data.removeprefix("data: ")))
        assert name == "event: " + bodies[-1]["type"]
    assert [body["sequence_number"] for body in bodies] == list(range(len(bodies)))
    return bodies


def test_a_response_has_the_answer_of_the_same_chat(client: httpx.Client) -> None:
    response = client.post("/v1/responses", json=BODY).json()
    chat = client.post("/v1/chat/completions", json=CHAT).json()
    (item,) = response["output"]
    assert (item["type"], item["role"]) == ("message", "assistant")
    assert item["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert (response["status"], response["incomplete_details"]) == (
        ("incomplete", {"reason": "max_output_tokens"})
        if chat["choices"][0]["finish_reason"] == "length"
        else ("completed", None)
    )
    assert response["usage"]["total_tokens"] == chat["usage"]["total_tokens"]
    assert (response["object"], response["store"], response["error"]) == ("response", False, None)


def test_a_streamed_response_equals_the_whole_one(client: httpx.Client) -> None:
    whole = client.post("/v1/responses", json=BODY).json()
    events = events_of(client.post("/v1/responses", json=BODY | {"stream": True}).text)

    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    assert kinds[-4:] == [
        "output_text.done", "content_part.done", "output_item.done", whole["status"],
    ]  # fmt: skip
    text = "".join(event["delta"] for event in events[4:-4])
    assert text == events[-4]["text"] == whole["output"][0]["content"][0]["text"]
    last = events[-1]["response"]
    assert last["output"] == [events[-2]["item"]]
    assert last["output"][0]["content"] == whole["output"][0]["content"]
    assert last["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_a_truncated_message_is_incomplete(client: httpx.Client) -> None:
    body = BODY | {"max_output_tokens": 3, "ignore_eos": True}
    whole = client.post("/v1/responses", json=body).json()
    events = events_of(client.post("/v1/responses", json=body | {"stream": True}).text)
    last = events[-1]["response"]
    for response in (whole, last):
        assert (response["status"], response["output"][0]["status"]) == ("incomplete", "incomplete")
    assert events[-1]["type"] == "response.incomplete"
    assert (events[-2]["type"], events[-2]["item"]["status"]) == (
        "response.output_item.done", "incomplete",
    )  # fmt: skip
    assert last["output"][0]["content"] == whole["output"][0]["content"]


@pytest.mark.parametrize(
    ("message", "statuses"),
    [
        ({"reasoning": "hm", "content": "I loo"}, ["completed", "incomplete"]),
        ({"reasoning": "hm"}, ["incomplete"]),
        ({"content": "I look.", "tool_calls": [CALL]}, ["completed", "completed"]),
    ],
)
async def test_only_the_last_item_can_be_incomplete(
    message: dict[str, Any], statuses: list[str]
) -> None:
    end = {"index": 0, "message": message, "delta": message, "finish_reason": "length"}
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    body = {"model": "soup", "choices": [end], "usage": usage}

    async def stream() -> Any:
        for chunk in ({"choices": [end]}, {"choices": [], "usage": usage}):
            yield b"data: " + json.dumps(chunk).encode() + b"\n\n"

    dialect = ResponsesDialect("7", 0)
    dialect.read(json.dumps(BODY).encode(), {})
    events = events_of(b"".join([e async for e in dialect.events(stream())]).decode())
    for response in (dialect.whole(body), events[-1]["response"]):
        assert response["status"] == "incomplete"
        assert [item["status"] for item in response["output"]] == statuses


def test_items_and_events_have_logprobs(client: httpx.Client) -> None:
    body = BODY | {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = client.post("/v1/responses", json=body).json()["output"][0]["content"][0]
    events = events_of(client.post("/v1/responses", json=body | {"stream": True}).text)
    streamed = [p for e in events if e["type"].endswith("text.delta") for p in e["logprobs"]]
    assert len(whole["logprobs"]) == 12
    assert [one["token"] for one in streamed] == [one["token"] for one in whole["logprobs"]]
    assert len(whole["logprobs"][0]["top_logprobs"]) == 2


def test_items_become_the_messages_of_a_chat(client: httpx.Client) -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": ASK}]},
        {"type": "message", "role": "assistant", "status": "completed", "id": "m1",
         "content": [{"type": "output_text", "text": "A pipe.", "annotations": []}]},
        {"role": "user", "content": "Why?"},
    ]  # fmt: skip
    response = client.post(
        "/v1/responses", json=BODY | {"input": items, "instructions": "Be brief."}
    )
    messages = [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": ASK},
        {"role": "assistant", "content": "A pipe."}, {"role": "user", "content": "Why?"},
    ]  # fmt: skip
    chat = client.post("/v1/chat/completions", json=CHAT | {"messages": messages}).json()
    assert response.json()["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
    assert (
        response.json()["output"][0]["content"][0]["text"]
        == (chat["choices"][0]["message"]["content"])
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"previous_response_id": "resp_1"}, "need stored responses: start the engine with"),
        ({"conversation": "c"}, "conversation is not supported: send its items"),
        ({"background": True}, "need stored responses: start the engine with"),
        ({"background": True, "store": False}, "background needs store: true"),
        ({"max_tool_calls": 3}, "max_tool_calls is not supported"),
        ({"previous_input_messages": [{"role": "user"}]}, "previous_input_messages is not"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "m1"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"truncation": "some"}, "truncation"),
        ({"include": ["surprise"]}, "include.0: Input should be 'message.output_text.logprobs' or"),
        ({"include": ["web_search_call.results"]}, "include.0"),
        ({"reasoning": {"summary": "detailed"}}, "summary must be auto or left out"),
        ({"reasoning": {"generate_summary": "concise"}}, "generate_summary must be auto"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 10**6}, "maximum context length"),
        ({"temperature": 1000}, "temperature"),
    ],
)
def test_invalid_requests_are_rejected(
    client: httpx.Client, change: dict[str, Any], message: str
) -> None:
    answer = client.post("/v1/responses", json=BODY | change)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_responses_are_not_stored_without_the_flag(client: httpx.Client) -> None:
    response = client.post("/v1/responses", json=BODY | {"store": True}).json()
    assert response["store"] is False
    assert client.get(f"/v1/responses/{response['id']}").status_code == 404


def test_errors_name_the_parameter_of_this_api(client: httpx.Client) -> None:
    answer = client.post("/v1/responses", json=BODY | {"max_output_tokens": 10**6})
    assert answer.json()["error"]["param"] == "max_output_tokens"


def test_parameters_without_effect_are_accepted(client: httpx.Client) -> None:
    body = {
        "store": True, "previous_response_id": None, "background": False, "user": "u",
        "service_tier": "auto", "metadata": {"a": "b"}, "truncation": "disabled",
        "text": {"format": {"type": "text"}, "verbosity": "medium"}, "parallel_tool_calls": False,
        "surprise": 1,
    }  # fmt: skip
    answer = client.post("/v1/responses", json=BODY | body)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["store"], answer.json()["metadata"]) == (False, {"a": "b"})


def test_parameters_that_codex_always_sends_are_accepted(client: httpx.Client) -> None:
    body = {
        "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "low", "summary": "auto"},
    }  # fmt: skip
    response = client.post("/v1/responses", json=BODY | body).json()
    assert response["reasoning"] == {"effort": "low", "summary": None}
    assert response["output"][0]["content"][0]["logprobs"] == []


def test_a_custom_tool_becomes_a_function_with_one_text_parameter() -> None:
    tool = {
        "type": "custom", "name": "patch", "description": "Edits files.",
        "format": {"type": "grammar", "syntax": "regex", "definition": "[a-z]+"},
    }  # fmt: skip
    items = [
        {"role": "user", "content": "Edit"},
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": 'say "a"'},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
    ]
    body = BODY | {"input": items, "tools": [tool, TOOL]}
    body["tool_choice"] = {"type": "custom", "name": "patch"}
    chat = ResponsesRequest.model_validate(body).as_chat()
    (call,) = chat["messages"][1]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"input": 'say "a"'}
    assert chat["messages"][2] == {"role": "tool", "tool_call_id": "c1", "content": "done"}
    function = chat["tools"][0]["function"]
    assert function["parameters"]["required"] == ["input"]
    assert function["description"] == "Edits files.\n\nThe input fits this regex:\n[a-z]+"
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "patch"}}


def test_an_output_call_of_a_custom_tool_can_be_an_input_item() -> None:
    part = Delta("call", "text", id="c1", name="patch", is_custom=True)
    output = item(part, "resp_1", 0, status="completed")
    assert output["id"].startswith("ctc_")
    assert as_input(output) == {
        "type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "text",
    }  # fmt: skip


INPUT_TEXT = 'say "a"\\\nnot é 😀 </tool_call>\t}'


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (json.dumps({"input": INPUT_TEXT}), INPUT_TEXT),
        (json.dumps({"input": INPUT_TEXT}, ensure_ascii=False), INPUT_TEXT),
        (' {\n "input" :\t"" }', ""),
        ('{"input": "cut', "cut"),
        ('{"input": "cut \\ud83d', "cut "),
        ('{"input": "lone \\ud83d\\u0041 \\udc00."}', "lone \ufffdA \ufffd."),
        ('{"input": "bad \\q."}', "bad \\q."),
        ('{"inp', ""),
        ("{}", "{}"),
        ('{"input": 5}', '{"input": 5}'),
        ('{"other": "x"}', '{"other": "x"}'),
    ],
)
@pytest.mark.parametrize("length", [1, 2, 7, 1000])
def test_the_input_of_a_custom_call_is_decoded_as_it_arrives(
    arguments: str, text: str, length: int
) -> None:
    pieces = [arguments[at : at + length] for at in range(0, len(arguments), length)]
    deltas = [Delta("call", "", 0, "c1", "patch"), *(Delta("call", piece) for piece in pieces)]
    translated = list(CustomCalls(frozenset({"patch"})).translate(deltas))
    assert "".join(delta.text for delta in translated) == text
    assert all(delta.is_custom for delta in translated)


def test_calls_of_functions_beside_custom_calls_keep_their_arguments() -> None:
    deltas = [
        Delta("call", '{"input"', 0, "c1", "patch"), Delta("call", ': "x"}', 0),
        Delta("call", '{"input"', 1, "c2", "look"), Delta("call", ': "x"}', 1),
    ]  # fmt: skip
    translated = list(CustomCalls(frozenset({"patch"})).translate(deltas))
    assert [(d.text, d.is_custom) for d in translated] == [
        ("", True), ("x", True), ('{"input"', False), (': "x"}', False),
    ]  # fmt: skip


def test_arguments_that_continue_a_call_precede_the_text_after_it() -> None:
    call = {"index": 0, "function": {"arguments": "}"}}
    begun = {"index": 1, "id": "c2", "function": {"name": "look", "arguments": ""}}
    deltas = message_deltas({"content": "Done.", "tool_calls": [call, begun]})
    assert [(d.kind, d.text, d.index) for d in deltas] == [
        ("call", "}", 0), ("text", "Done.", 0), ("call", "", 1),
    ]  # fmt: skip


def test_a_cut_off_call_is_not_part_of_a_stored_conversation() -> None:
    store = ResponseStore()
    dialect = ResponsesDialect("7", 0, store)
    dialect.read(json.dumps(BODY | {"store": True}).encode(), {})
    calls = [
        {"id": "c1", "function": {"name": "look", "arguments": "{}"}},
        {"id": "c2", "function": {"name": "look", "arguments": '{"a'}},
    ]
    message = {"content": None, "tool_calls": calls}
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    choice = {"message": message, "finish_reason": "length"}
    whole = dialect.whole({"model": "soup", "choices": [choice], "usage": usage})
    assert [item["status"] for item in whole["output"]] == ["completed", "incomplete"]
    items = store.history(whole["id"], 10_000)
    assert [item.get("call_id") for item in items] == [None, "c1"]


def test_adjacent_assistant_items_become_one_message() -> None:
    items = [
        {"role": "user", "content": "Look"},
        {"type": "reasoning", "id": "r", "summary": [],
         "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "blue"},
        {"type": "function_call_output", "call_id": "c2", "output": "red"},
    ]  # fmt: skip
    body = BODY | {
        "input": items, "tools": [TOOL], "tool_choice": {"type": "function", "name": "look"},
        "text": {"format": {"type": "json_schema", "name": "a", "schema": {}}},
    }  # fmt: skip
    chat = ResponsesRequest.model_validate(body).as_chat()
    call = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
    assert chat["messages"] == [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": "I look.", "reasoning": "hm",
         "tool_calls": [{"id": "c1"} | call, {"id": "c2"} | call]},
        {"role": "tool", "tool_call_id": "c1", "content": "blue"},
        {"role": "tool", "tool_call_id": "c2", "content": "red"},
    ]  # fmt: skip
    function = {"name": "look", "parameters": {"type": "object"}}
    assert chat["tools"] == [{"type": "function", "function": function}]
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert chat["response_format"] == {
        "type": "json_schema", "json_schema": {"name": "a", "schema": {}},
    }  # fmt: skip


async def test_streamed_items_start_and_end_in_order() -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{"}}
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        {"reasoning": "hm"},
        {"content": "I "},
        {"content": "look."},
        {"tool_calls": [call]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]},
    ]
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks += [
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}, {"choices": [], "usage": usage},
    ]  # fmt: skip

    async def stream() -> Any:
        for chunk in chunks:
            yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
        yield SSE_DONE

    dialect = ResponsesDialect("7", 0)
    dialect.read(json.dumps(BODY).encode(), {})
    events = events_of(b"".join([e async for e in dialect.events(stream())]).decode())
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
        "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    response = events[-1]["response"]["output"]
    assert [item["type"] for item in response] == ["reasoning", "message", "function_call"]
    assert [item["id"] for item in response] == ["rs_7_0", "msg_7_1", "fc_7_2"]
    assert (response[2]["call_id"], response[2]["name"], response[2]["arguments"]) == (
        "c1",
        "look",
        "{}",
    )
    assert [e["output_index"] for e in events if "output_index" in e] == sorted(
        e["output_index"] for e in events if "output_index" in e
    )


async def test_a_stream_with_an_error_ends_as_failed() -> None:
    async def stream() -> Any:
        yield b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n'
        yield b'data: {"error": {"message": "stopping", "code": 503}}\n\n'
        yield SSE_DONE

    dialect = ResponsesDialect("7", 0)
    dialect.read(json.dumps(BODY).encode(), {})
    events = events_of(b"".join([e async for e in dialect.events(stream())]).decode())
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["status"] == "failed"
    assert events[-1]["response"]["error"] == {"code": "server_error", "message": "stopping"}
