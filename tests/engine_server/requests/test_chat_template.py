"""Tests of chat template variables, roles, reasoning_effort, and the end of the prompt."""

import json
from typing import Any

import httpx
import pytest

TEMPLATE = (
    "{% if tone is defined %}tone {{ tone | tojson }}\n{% endif %}"
    "{% if reasoning_effort is defined %}effort {{ reasoning_effort }}\n{% endif %}"
    "{% if enable_thinking is defined %}thinking {{ enable_thinking }}\n{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'jester' %}{{ raise_exception('No jesters here.') }}{% endif %}"
    "{{ message.role }}: {{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
USER = {"role": "user", "content": "Hi."}
UNFINISHED = {"role": "assistant", "content": "The gateway"}
GREEDY = {"temperature": 0, "max_tokens": 6}

Launch = Any


@pytest.fixture(scope="module")
def echoing(launch: Launch) -> httpx.Client:
    """A client of an engine whose chat template writes its variables into the prompt."""
    client, _ = launch("--max-model-len", "512", "--chat-template", TEMPLATE)
    return client


def post(client: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    decoded: dict[str, Any] = answer.json()
    return decoded


def prompt(client: httpx.Client, **body: Any) -> str:
    """Returns the text of a chat request's prompt."""
    ids = post(client, "/tokenize", **{"messages": [USER]} | body)["tokens"]
    text: str = post(client, "/detokenize", tokens=ids)["prompt"]
    return text


def error_of(client: httpx.Client, path: str = "/v1/chat/completions", **body: Any) -> Any:
    """Returns the error of an invalid request."""
    prompt: dict[str, Any] = {} if "input" in body else {"messages": [USER]}
    answer = client.post(path, json=prompt | body)
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


def deltas(client: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    answer = client.post("/v1/chat/completions", json=body | {"stream": True})
    assert answer.status_code == 200, answer.text
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    return [json.loads(event)["choices"][0]["delta"] for event in events]


@pytest.mark.parametrize("value", ["warm", 7, None, True, ["a", {"b": 1.5}], {"x": ""}])
def test_the_template_reads_variables_of_any_name(echoing: httpx.Client, value: Any) -> None:
    text = prompt(echoing, chat_template_kwargs={"tone": value, "nobody-reads-this": [1]})
    assert text == f"tone {json.dumps(value)}\nuser: Hi.<|im_end|>\nassistant:"


def test_variables_apply_on_every_chat_route(echoing: httpx.Client) -> None:
    body = {"chat_template_kwargs": {"tone": "warm"}}
    text = prompt(echoing, **body)
    plain = post(echoing, "/v1/completions", prompt=text, **GREEDY)
    chat = post(echoing, "/v1/chat/completions", messages=[USER], **GREEDY, **body)
    response = post(
        echoing, "/v1/responses", input="Hi.", temperature=0, max_output_tokens=6, **body
    )
    assert chat["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]
    assert response["usage"]["input_tokens"] == plain["usage"]["prompt_tokens"]
    assert chat["choices"][0]["message"]["content"] == plain["choices"][0]["text"]


def test_tools_need_a_template_that_shows_them_and_the_error_says_how_to_give_one(
    echoing: httpx.Client,
) -> None:
    tool = {"type": "function", "function": {"name": "look"}}
    error = error_of(echoing, tools=[tool], tool_choice="required")
    assert error["param"] == "tools"
    assert error["message"] == (
        "this model's chat template does not take tools: give the engine one that does, with "
        "--chat-template"
    )


@pytest.mark.parametrize("name", ["tokenize", "chat_template", "tools", "messages", "max_length"])
def test_arguments_of_the_renderer_are_rejected_as_variables(
    echoing: httpx.Client, name: str
) -> None:
    error = error_of(echoing, chat_template_kwargs={name: "x"})
    assert error["param"] == "chat_template_kwargs"
    assert name in error["message"] or "--chat-template" in error["message"]


@pytest.mark.parametrize(
    "variables", [{"x": "y" * 2**16}, {f"x{i}": 0 for i in range(65)}, "x", [1]]
)
def test_variables_have_size_limits(echoing: httpx.Client, variables: Any) -> None:
    assert error_of(echoing, chat_template_kwargs=variables)["param"] == "chat_template_kwargs"


def test_a_prompt_too_long_because_of_variables_is_rejected(echoing: httpx.Client) -> None:
    error = error_of(echoing, chat_template_kwargs={"tone": "word " * 10_000})
    assert "maximum context length" in error["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize", "/v1/responses"])
def test_a_template_in_a_request_is_rejected(echoing: httpx.Client, path: str) -> None:
    error = error_of(echoing, path, input="Hi.", chat_template="{{ 7 }}")
    assert error["param"] == "chat_template"
    assert "--chat-template" in error["message"]


@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_reasoning_effort_reaches_the_template_and_sets_enable_thinking(
    echoing: httpx.Client, effort: str
) -> None:
    text = prompt(echoing, reasoning_effort=effort)
    assert text.startswith(f"effort {effort}\nthinking {effort != 'none'}\nuser: Hi.")
    chat = post(echoing, "/v1/chat/completions", messages=[USER], reasoning_effort=effort, **GREEDY)
    response = post(
        echoing, "/v1/responses", input="Hi.", reasoning={"effort": effort}, max_output_tokens=6
    )
    assert response["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
    assert response["reasoning"]["effort"] == effort


def test_a_template_variable_overrides_reasoning_effort(echoing: httpx.Client) -> None:
    switch = {"enable_thinking": True, "reasoning_effort": "low"}
    text = prompt(echoing, reasoning_effort="none", chat_template_kwargs=switch)
    assert text.startswith("effort none\nthinking True\n")


def test_reasoning_effort_has_no_effect_if_the_template_does_not_read_it(
    client: httpx.Client,
) -> None:
    assert prompt(client, reasoning_effort="none") == prompt(client)


def test_errors_name_the_field_of_the_request(echoing: httpx.Client) -> None:
    chat = error_of(echoing, reasoning_effort="hard")
    assert (chat["param"], chat["message"][:17]) == ("reasoning_effort", "reasoning_effort:")
    response = error_of(echoing, "/v1/responses", input="Hi.", reasoning={"effort": "hard"})
    assert response["param"] == "reasoning"
    assert response["message"].startswith("reasoning.effort:")
    tokens = error_of(echoing, "/v1/responses", input="Hi.", max_output_tokens=5000)
    assert (tokens["param"], "max_tokens" in tokens["message"]) == ("max_output_tokens", False)


def test_the_template_accepts_or_rejects_roles(echoing: httpx.Client) -> None:
    parts = [{"type": "text", "text": "Hi."}]
    for content in ("Hi.", parts):
        text = prompt(echoing, messages=[{"role": "my-custom-role", "content": content}])
        assert text == "my-custom-role: Hi.<|im_end|>\nassistant:"
    error = error_of(echoing, messages=[{"role": "jester", "content": "Hi."}])
    assert error["param"] == "messages"
    assert "No jesters here." in error["message"]


def test_a_prompt_can_end_without_a_new_message(echoing: httpx.Client) -> None:
    assert prompt(echoing, add_generation_prompt=False) == "user: Hi.<|im_end|>\n"
    assert prompt(echoing, add_generation_prompt=True) == prompt(echoing)
    body = {"messages": [USER], "add_generation_prompt": False, **GREEDY}
    answer = post(echoing, "/v1/chat/completions", **body)
    assert answer["choices"][0]["message"]["role"] == "user"
    assert deltas(echoing, **body)[0] == {"role": "user", "content": ""}


@pytest.mark.parametrize("explicit", [{}, {"add_generation_prompt": False}])
def test_the_last_message_is_continued(echoing: httpx.Client, explicit: dict[str, bool]) -> None:
    body = {"messages": [USER, UNFINISHED], "continue_final_message": True, **explicit}
    text = prompt(echoing, **body)
    assert text == "user: Hi.<|im_end|>\nassistant: The gateway"
    plain = post(echoing, "/v1/completions", prompt=text, **GREEDY)["choices"][0]["text"]
    message = post(echoing, "/v1/chat/completions", **body, **GREEDY)["choices"][0]["message"]
    assert (message["role"], message["content"]) == ("assistant", plain)
    streamed = deltas(echoing, **body, **GREEDY)
    assert "".join(delta["content"] for delta in streamed) == plain

    echoed = post(echoing, "/v1/chat/completions", **body, **GREEDY, echo=True)
    assert echoed["choices"][0]["message"]["content"] == UNFINISHED["content"] + plain
    streamed = deltas(echoing, **body, **GREEDY, echo=True)
    assert "".join(delta["content"] for delta in streamed) == UNFINISHED["content"] + plain


def test_an_incomplete_item_of_a_response_is_continued(echoing: httpx.Client) -> None:
    item = UNFINISHED | {"type": "message", "status": "incomplete"}
    body = {"temperature": 0, "max_output_tokens": 6}
    response = post(echoing, "/v1/responses", input=[USER, item], **body)
    chat = post(
        echoing,
        "/v1/chat/completions",
        messages=[USER, UNFINISHED],
        continue_final_message=True,
        **GREEDY,
    )
    assert response["output"][0]["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    ended = post(echoing, "/v1/responses", input=[USER, item | {"status": "completed"}], **body)
    assert ended["usage"]["input_tokens"] > response["usage"]["input_tokens"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
def test_a_new_message_and_a_continued_one_exclude_each_other(
    echoing: httpx.Client, path: str
) -> None:
    both = {"add_generation_prompt": True, "continue_final_message": True}
    message = error_of(echoing, path, messages=[USER, UNFINISHED], **both)["message"]
    assert "continue_final_message" in message
    assert "add_generation_prompt" in message


def test_null_parameters_mean_the_default(echoing: httpx.Client) -> None:
    message = post(echoing, "/v1/chat/completions", messages=[USER], **GREEDY)["choices"][0][
        "message"
    ]
    assert message["reasoning"] is None
    nulls = dict.fromkeys(("top_logprobs", "reasoning", "tools", "stream", "text", "include"))
    response = post(echoing, "/v1/responses", input="Hi.", max_output_tokens=4, **nulls)
    assert response["status"] in ("completed", "incomplete")


def test_special_tokens_can_be_added_to_those_of_the_template(echoing: httpx.Client) -> None:
    assert prompt(echoing, add_special_tokens=True).endswith(prompt(echoing))
