"""Structured output, tools and reasoning of a running engine, as clients see them."""

import json
import re
from typing import Any

import httpx
import pytest
from jsonschema import validate

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "likes": {"type": "array", "items": {"enum": ["tea", "rain"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"enum": ["Oslo", "Ulm"]},
                "place": {"$ref": "#/$defs/place"},
            },
            "required": ["city"],
            "additionalProperties": False,
            "$defs": {"place": {"type": "integer", "minimum": 1, "maximum": 9}},
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Say something."}],
    "temperature": 1.0,
    "seed": 3,
    "max_tokens": 400,
}
Launch = Any


@pytest.fixture(scope="session")
def client(launch: Launch) -> httpx.Client:
    client, _ = launch(
        "--max-model-len", "1024", "--max-num-seqs", "8", "--enable-auto-tool-choice",
        "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3",
    )  # fmt: skip
    return client


@pytest.fixture(scope="session")
def plain(launch: Launch) -> httpx.Client:
    """An engine without parsers."""
    client, _ = launch("--max-model-len", "1024", "--max-num-seqs", "8")
    return client


def ask(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/chat/completions", json=CHAT | body)
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


def closing(client: httpx.Client, marks: str = '"}]') -> dict[str, float]:
    """A bias towards these marks: soup alone would hardly ever come to the end of a text."""
    tokens = [
        client.post("/tokenize", json={"prompt": mark, "add_special_tokens": False}).json()
        for mark in marks
    ]
    return {str(answer["tokens"][-1]): 8.0 for answer in tokens}


def stream(client: httpx.Client, **body: Any) -> dict[str, Any]:
    """The choice that the deltas of a stream add up to."""
    content: str | None = None
    message: dict[str, Any] = {"role": "assistant", "reasoning": None}
    reason = None
    with client.stream(
        "POST", "/v1/chat/completions", json=CHAT | body | {"stream": True}
    ) as lines:
        assert lines.status_code == 200, lines.read()
        for line in lines.iter_lines():
            if not line or line == "data: [DONE]":
                continue
            (choice,) = json.loads(line.removeprefix("data: "))["choices"]
            delta = choice["delta"]
            content = (content or "") + delta.get("content", "")
            if "reasoning" in delta:
                message["reasoning"] = (message["reasoning"] or "") + delta["reasoning"]
            for call in delta.get("tool_calls", ()):
                assert call.pop("index") == len(message.setdefault("tool_calls", []))
                message["tool_calls"].append(call)
            reason = choice["finish_reason"] or reason
    is_null = not content and bool(message["reasoning"] or "tool_calls" in message)
    return {"message": message | {"content": None if is_null else content}, "finish_reason": reason}


def without_ids(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return message | {"tool_calls": calls, "finish_reason": choice["finish_reason"]}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "form",
    [
        {"response_format": {"type": "json_schema",
                             "json_schema": {"name": "person", "schema": PERSON, "strict": True}}},
        {"structured_outputs": {"json": PERSON}},
        {"structured_outputs": {"json": json.dumps(PERSON)}},
    ],
)  # fmt: skip
def test_a_json_schema_is_kept(plain: httpx.Client, form: dict[str, Any], seed: int) -> None:
    choice = ask(plain, **form, seed=seed)
    assert choice["finish_reason"] == "stop"
    validate(json.loads(choice["message"]["content"]), PERSON)
    assert without_ids(stream(plain, **form, seed=seed)) == without_ids(choice)


def test_drafts_change_nothing(plain: httpx.Client, launch: Launch) -> None:
    """Those that the grammar refuses are taken back, and a seed draws what it draws without."""
    config = json.dumps({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1})
    guessing, _ = launch("--max-model-len", "1024", "--speculative-config", config)
    words = {"type": "array", "items": {"enum": ["tea", "rain"]}, "minItems": 8, "maxItems": 8}
    for seed in range(2):
        form = {"structured_outputs": {"json": words}, "seed": seed, "temperature": 0.5}
        assert ask(guessing, **form) == ask(plain, **form)


def test_every_choice_has_its_own_place_in_the_grammar(plain: httpx.Client) -> None:
    body = CHAT | {"n": 6, "structured_outputs": {"json": PERSON}}
    choices = plain.post("/v1/chat/completions", json=body).json()["choices"]
    texts = [choice["message"]["content"] for choice in choices]
    assert len(set(texts)) == 6
    for text in texts:
        validate(json.loads(text), PERSON)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"choice": ["yes", "no, never"]}, r"yes|no, never"),
        ({"choice": ['é"\\n', "a/b"]}, r'é"\\n|a/b'),
        ({"regex": r"[a-f]{3}/[0-9]{2,4}"}, r"[a-f]{3}/[0-9]{2,4}"),
        ({"grammar": 'start: "a"{2,5} TAIL\nTAIL: /[xy]{2}/'}, r"a{2,5}[xy]{2}"),
        ({"grammar": 'root ::= "a" ("b" | "c")'}, r"a[bc]"),
    ],
)
def test_other_forms(plain: httpx.Client, form: dict[str, Any], expected: str) -> None:
    body = {"prompt": "The engine", "max_tokens": 60, "seed": 5, "structured_outputs": form}
    (choice,) = plain.post("/v1/completions", json=body).json()["choices"]
    assert choice["finish_reason"] == "stop"
    assert re.fullmatch(expected, choice["text"]), choice["text"]


@pytest.mark.parametrize("form", [
    {"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}},
])  # fmt: skip
def test_json_objects(plain: httpx.Client, form: dict[str, Any]) -> None:
    hurry = closing(plain)
    choices = [ask(plain, **form, seed=seed, logit_bias=hurry) for seed in range(8)]
    texts = [c["message"]["content"] for c in choices if c["finish_reason"] == "stop"]
    assert texts
    assert all(isinstance(json.loads(text), dict) for text in texts)


@pytest.mark.parametrize("min_tokens", [0, 30])
@pytest.mark.parametrize("ignore_eos", [False, True])
def test_a_complete_grammar_ends_the_answer(
    plain: httpx.Client, min_tokens: int, ignore_eos: bool
) -> None:
    choice = ask(
        plain, structured_outputs={"choice": ["ab"]}, min_tokens=min_tokens, ignore_eos=ignore_eos
    )
    assert (choice["message"]["content"], choice["finish_reason"]) == ("ab", "stop")


def test_min_tokens_holds_the_end_of_an_open_grammar_back(plain: httpx.Client) -> None:
    body = CHAT | {"structured_outputs": {"regex": "[ab]+"}, "min_tokens": 40, "max_tokens": 60}
    answer = plain.post("/v1/chat/completions", json=body).json()
    assert answer["usage"]["completion_tokens"] >= 40


def test_stop_strings_count_within_a_grammar(plain: httpx.Client) -> None:
    choice = ask(plain, structured_outputs={"regex": "a{50}"}, stop=["aaaa"])
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")


@pytest.mark.parametrize(
    "tool_choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
@pytest.mark.parametrize("has_parser", [False, True])
def test_calls_can_be_demanded(
    client: httpx.Client, plain: httpx.Client, tool_choice: Any, has_parser: bool
) -> None:
    engine = client if has_parser else plain
    body = {
        "tools": [WEATHER, NOW], "tool_choice": tool_choice, "parallel_tool_calls": False,
        "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    choice = ask(engine, **body)
    (call,) = choice["message"]["tool_calls"]
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == ("tool_calls" if tool_choice == "required" else "stop")
    assert call["id"].startswith("call_")
    assert call["type"] == "function"
    assert call["function"]["name"] in ("get_weather", "now")
    if call["function"]["name"] == "get_weather":
        validate(json.loads(call["function"]["arguments"]), WEATHER["function"]["parameters"])  # type: ignore[index]
    assert without_ids(stream(engine, **body)) == without_ids(choice)


def test_several_calls_can_be_demanded(plain: httpx.Client) -> None:
    counts = {
        len(
            ask(plain, tools=[NOW], tool_choice="required", seed=seed, logit_bias=bias)[
                "message"
            ].get("tool_calls", ())
        )
        for seed in range(6)
        for bias in ({}, closing(plain, '"}],'))
    }
    assert max(counts) > 1


def test_strict_tools_leave_the_choice_but_no_wrong_call(client: httpx.Client) -> None:
    strict = {"type": "function", "function": WEATHER["function"] | {"strict": True}}  # type: ignore[operator]
    for seed in range(3):
        choice = ask(client, tools=[strict], seed=seed, max_tokens=80)
        for call in choice["message"].get("tool_calls", ()):
            validate(json.loads(call["function"]["arguments"]), WEATHER["function"]["parameters"])  # type: ignore[index]


def test_without_a_choice_of_tools_text_is_text(client: httpx.Client) -> None:
    free = ask(client, tools=[NOW], tool_choice="auto", max_tokens=20)
    assert free["message"]["content"]
    assert "tool_calls" not in free["message"]
    assert ask(client, tools=[NOW], tool_choice="none", max_tokens=20) == free


def test_fields_that_nobody_knows_change_nothing_of_tools(client: httpx.Client) -> None:
    """Neither what the model reads nor what is drawn."""
    extra = {"cache_control": {"type": "ephemeral"}}
    function = NOW["function"] | extra  # type: ignore[operator]
    for choice in ("auto", NOW):
        named = choice if choice == "auto" else NOW | extra | {"function": function}
        plain = ask(client, tools=[NOW], tool_choice=choice, max_tokens=20)
        told = ask(
            client, tools=[NOW | extra | {"function": function}], tool_choice=named, max_tokens=20
        )
        assert without_ids(told) == without_ids(plain)


def test_reasoning_comes_before_a_form(client: httpx.Client) -> None:
    """The grammar lets the model think first: whether it does is its own choice."""
    forced = {"structured_outputs": {"choice": ["yes"]}, "max_tokens": 300}
    choice = ask(client, **forced)
    if choice["finish_reason"] == "stop":
        assert choice["message"]["content"] == "yes"
    assert without_ids(stream(client, **forced)) == without_ids(choice)


def usage_of_stream(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    """The last usage of a stream."""
    text = client.post(path, json=body | {"stream": True}).text
    bodies = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    told = [event.get("response", event).get("usage") for event in bodies]
    return [usage for usage in told if usage is not None][-1]


def test_usage_tells_the_tokens_of_reasoning(client: httpx.Client) -> None:
    """All tokens of a message that goes on within its reasoning are reasoning."""
    text = "<think>The water"
    path, body = "/v1/chat/completions", CHAT | {"max_tokens": 12, "ignore_eos": True}
    body["messages"] = [*CHAT["messages"], {"role": "assistant", "content": text}]
    body["continue_final_message"] = True
    whole = client.post(path, json=body).json()["usage"]
    streamed = usage_of_stream(client, path, body | {"stream_options": {"include_usage": True}})
    assert whole["completion_tokens_details"] == {"reasoning_tokens": 12}
    assert streamed["completion_tokens_details"] == {"reasoning_tokens": 12}
    unthinking = {"chat_template_kwargs": {"enable_thinking": False}}
    plain = client.post(path, json=body | unthinking).json()["usage"]
    assert plain["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_a_response_tells_the_tokens_of_reasoning(client: httpx.Client) -> None:
    begun = {"role": "assistant", "content": "<think>The water", "status": "in_progress"}
    body = {"input": [{"role": "user", "content": "Say."}, begun], "max_output_tokens": 12}
    body |= {"ignore_eos": True, "seed": 3}
    whole = client.post("/v1/responses", json=body).json()["usage"]
    streamed = usage_of_stream(client, "/v1/responses", body)
    assert whole["output_tokens_details"] == {"reasoning_tokens": 12}
    assert streamed["output_tokens_details"] == {"reasoning_tokens": 12}


THINKING: dict[str, Any] = {
    "messages": [*CHAT["messages"], {"role": "assistant", "content": "<think>The water"}],
    "continue_final_message": True, "max_tokens": 40, "ignore_eos": True,
}  # fmt: skip


@pytest.mark.parametrize("budget", [0, 1, 7])
def test_reasoning_ends_when_its_budget_is_spent(client: httpx.Client, budget: int) -> None:
    body = THINKING | {"thinking_token_budget": budget}
    answer = client.post("/v1/chat/completions", json=CHAT | body).json()
    details = answer["usage"]["completion_tokens_details"]
    message = answer["choices"][0]["message"]
    assert details == {"reasoning_tokens": budget}
    assert message["content"]
    assert bool(message["reasoning"]) == bool(budget)
    assert without_ids(stream(client, **body)) == without_ids(answer["choices"][0])


def test_a_budget_that_is_not_spent_changes_nothing(client: httpx.Client) -> None:
    plain = ask(client, **THINKING)
    assert plain["message"]["content"] is None
    for budget in (-1, 41, None):
        assert ask(client, **THINKING | {"thinking_token_budget": budget}) == plain


def test_a_form_follows_the_budgeted_reasoning(client: httpx.Client) -> None:
    forced = {"structured_outputs": {"choice": ["yes"]}, "thinking_token_budget": 5}
    for seed in range(4):
        choice = ask(client, **THINKING | forced | {"seed": seed, "max_tokens": 60})
        assert (choice["message"]["content"], choice["finish_reason"]) == ("yes", "stop")


def test_a_completion_and_a_response_have_budgets(client: httpx.Client) -> None:
    body = {"prompt": "<think>The water", "max_tokens": 30, "ignore_eos": True, "seed": 3}
    text = client.post("/v1/completions", json=body | {"thinking_token_budget": 4}).json()
    assert text["choices"][0]["text"].count("</think>") == 1
    assert "completion_tokens_details" not in text["usage"]  # its text has no parts
    begun = {"role": "assistant", "content": "<think>The water", "status": "in_progress"}
    items = [{"role": "user", "content": "Say."}, begun]
    response = {"input": items, "max_output_tokens": 30, "ignore_eos": True, "seed": 3}
    told = client.post("/v1/responses", json=response | {"thinking_token_budget": 4}).json()
    assert told["usage"]["output_tokens_details"] == {"reasoning_tokens": 4}
    assert [item["type"] for item in told["output"]] == ["reasoning", "message"]


@pytest.mark.parametrize(
    "thinking",
    [
        {"type": "enabled"},
        {"type": "enabled", "budget_tokens": 0},
        {"type": "enabled", "budget_tokens": 30},
        {"type": "disabled", "budget_tokens": 5},
        {"type": "deep"},
    ],
)
def test_what_is_no_thinking(client: httpx.Client, thinking: Any) -> None:
    body = {"messages": CHAT["messages"], "max_tokens": 30, "thinking": thinking}
    answer = client.post("/v1/messages", json=body)
    assert (answer.status_code, "thinking" in answer.text) == (400, True)


@pytest.mark.parametrize("budget", [-2, 1.5, True, "3"])
def test_what_is_no_budget(client: httpx.Client, budget: Any) -> None:
    body = CHAT | {"thinking_token_budget": budget}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "thinking_token_budget"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/responses", {"input": "a"}),
    ],
)
def test_a_budget_needs_a_reasoning_parser(
    plain: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    error = plain.post(path, json=body | {"thinking_token_budget": 5}).json()["error"]
    assert (error["code"], error["param"]) == (400, "thinking_token_budget")
    assert "--reasoning-parser" in error["message"]


def test_thinking_of_a_message_needs_a_reasoning_parser(plain: httpx.Client) -> None:
    body = {"messages": CHAT["messages"], "max_tokens": 30}
    for kind in ("adaptive", "disabled"):
        answer = plain.post("/v1/messages", json=body | {"thinking": {"type": kind}})
        assert answer.status_code == 200
    enabled = {"thinking": {"type": "enabled", "budget_tokens": 5}}
    answer = plain.post("/v1/messages", json=body | enabled)
    assert (answer.status_code, "--reasoning-parser" in answer.text) == (400, True)


def test_a_custom_tool_of_a_response_is_called_with_text(client: httpx.Client) -> None:
    """The call is an item with its input; in a stream the input has events of its own."""
    body = {
        "input": "Edit.", "max_output_tokens": 400, "tool_choice": "required", "temperature": 1.0,
        "tools": [{"type": "custom", "name": "edit"}], "logit_bias": closing(client),
        "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    called = False
    for seed in range(4):
        whole = client.post("/v1/responses", json=body | {"seed": seed}).json()
        text = client.post("/v1/responses", json=body | {"seed": seed, "stream": True}).text
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        calls = [item for item in whole["output"] if item["type"] == "custom_tool_call"]
        called = called or bool(calls)
        for call in calls:
            assert (call["name"], type(call["input"])) == ("edit", str)
            assert call["call_id"]
        done = [e["input"] for e in events if e["type"] == "response.custom_tool_call_input.done"]
        assert done == [call["input"] for call in calls]
        assert not any("function_call" in event["type"] for event in events)
    assert called


def test_calls_and_their_results_go_back_in(client: httpx.Client) -> None:
    """The template writes them as the model would have."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "now", "arguments": '{"z": 1}', "parsed_arguments": {"z": 1}},
    }
    messages = [
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]
    body = {"max_tokens": 5, "seed": 1}
    chat = client.post("/v1/chat/completions", json=body | {"messages": messages, "tools": [NOW]})
    tool = '{"type": "function", "function": {"name": "now"}}'
    written = (
        f"<|im_start|>system\nTools:\n{tool}\n<|im_end|>\n<|im_start|>user\nWhen?<|im_end|>\n"
        '<|im_start|>assistant\n\n<tool_call>\n{"name": "now", "arguments": {"z": 1}}\n</tool_call>'
        "<|im_end|>\n<|im_start|>tool\nnoon<|im_end|>\n<|im_start|>assistant\n"
    )
    plain = client.post("/v1/completions", json=body | {"prompt": written})
    assert chat.status_code == 200, chat.text
    assert chat.json()["usage"]["prompt_tokens"] == plain.json()["usage"]["prompt_tokens"]
    assert chat.json()["choices"][0]["message"]["content"] == plain.json()["choices"][0]["text"]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("response_format", {"response_format": {"type": "xml"}}, "does not match"),
    ("response_format", {"response_format": {"type": "json_schema"}}, "required"),
    ("response_format", {"response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"type": "array", "uniqueItems": True}}}}, "uniqueItems"),
    ("response_format", {"response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "schema": False}}}, "satisfy"),
    ("structured_outputs", {"structured_outputs": {}}, "exactly one"),
    ("structured_outputs", {"structured_outputs": {"regex": "a", "choice": ["a"]}}, "exactly one"),
    ("structured_outputs", {"structured_outputs": {"json": "{"}}, "not the text"),
    ("structured_outputs", {"structured_outputs": {"json": {"type": "integer", "minimum": 2,
                                                            "maximum": 1}}}, "Unsatisfiable"),
    ("structured_outputs", {"structured_outputs": {"regex": "("}}, "unclosed group"),
    ("structured_outputs", {"structured_outputs": {"regex": "(?=a)b"}}, "look-around"),
    ("structured_outputs", {"structured_outputs": {"choice": []}}, "1 to"),
    ("structured_outputs", {"structured_outputs": {"grammar": "start: nothing"}}, "unknown name"),
    ("structured_outputs", {"structured_outputs": {"guided_json": {}}}, "Extra inputs"),
    ("tools", {"tools": [{"type": "function", "function": {"name": "a b"}}]}, "pattern"),
    ("tools", {"tools": [NOW, NOW]}, "differ"),
    ("tools", {"tools": [{"type": "function", "function": {
        "name": "f", "parameters": {"type": "string"}}}], "tool_choice": "required"}, "type object"),
    ("tool_choice", {"tools": [NOW], "tool_choice": {"type": "function", "function": {
        "name": "f"}}}, "none of the tools"),
    ("tool_choice", {"tools": [NOW], "tool_choice": "maybe"}, "tool_choice"),
    ("tool_choice", {"tool_choice": "required"}, "needs tools"),
    ("messages", {"messages": [{"role": "tool", "content": "x"}]}, "tool_call_id"),
    ("messages", {"messages": [{"role": "assistant", "tool_calls": [{"id": "x", "function": {
        "name": "f", "arguments": "[1]"}}]}]}, "JSON object"),
    ("chat_template_kwargs", {"chat_template_kwargs": {"tokenize": True}}, "no variable"),
]  # fmt: skip


@pytest.mark.parametrize(("param", "body", "says"), REFUSED)
def test_what_cannot_be_kept_is_refused(
    client: httpx.Client, param: str, body: dict[str, Any], says: str
) -> None:
    answer = client.post("/v1/chat/completions", json=CHAT | body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert says in error["message"], error
    assert error["param"] in (param, None)


def test_auto_needs_a_parser(plain: httpx.Client) -> None:
    answer = plain.post("/v1/chat/completions", json=CHAT | {"tools": [NOW]})
    assert answer.status_code == 400
    assert "--tool-call-parser" in answer.json()["error"]["message"]
