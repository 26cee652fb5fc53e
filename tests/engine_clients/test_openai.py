"""A tour of the engine with OpenAI's own client, and nothing made for the engine."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

ASK: list[Any] = [{"role": "user", "content": "What is a penstock?"}]
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"at": {"enum": ["sky", "sea"]}},
            "required": ["at"],
            "additionalProperties": False,
        },
    },
}
YES_OR_NO = {"structured_outputs": {"choice": ["yes", "no"]}}
FLAT_TOOL: dict[str, Any] = {"type": "function", "strict": True, **TOOL["function"]}


class Mood(BaseModel):
    mood: Literal["calm", "wild"]
    level: Literal[1, 2, 3]


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0) as client:
        yield client


def test_models(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object) == ("soup", "model")


def test_chat_whole_and_streamed(client: OpenAI) -> None:
    settings: dict[str, Any] = {
        "model": "soup", "messages": ASK, "max_completion_tokens": 12, "seed": 3, "stop": ["never"],
        "presence_penalty": 0.5, "logit_bias": {"11": -100}, "user": "tour",
    }  # fmt: skip
    whole = client.chat.completions.create(**settings)
    chunks = list(
        client.chat.completions.create(
            **settings, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_the_streaming_helper(client: OpenAI) -> None:
    with client.chat.completions.stream(model="soup", messages=ASK, extra_body=YES_OR_NO) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "content.delta" in kinds
    assert final.choices[0].message.role == "assistant"


def test_several_choices_with_logprobs(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="soup", messages=ASK, max_tokens=3, n=2, logprobs=True, top_logprobs=2,
        extra_body={"top_k": 20, "min_p": 0.01, "ignore_eos": True, "priority": -1},
    )  # fmt: skip
    assert len(answer.choices) == 2
    told = answer.choices[0].logprobs
    assert told is not None
    assert told.content is not None
    assert [len(token.top_logprobs) for token in told.content] == [2, 2, 2]


def test_structured_output(client: OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="soup", messages=ASK, response_format=Mood, max_tokens=800
    )
    assert isinstance(answer.choices[0].message.parsed, Mood)


def test_structured_output_by_vllms_field(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="soup", messages=ASK, extra_body=YES_OR_NO)
    assert answer.choices[0].message.content in ("yes", "no")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look"}}])
def test_a_tool_is_called(client: OpenAI, choice: Any) -> None:
    first = client.chat.completions.create(
        model="soup", messages=ASK, tools=[TOOL], tool_choice=choice, max_tokens=800,
        parallel_tool_calls=False,
    )  # fmt: skip
    (call,) = first.choices[0].message.tool_calls or ()
    assert call.type == "function"
    assert json.loads(call.function.arguments)["at"] in ("sky", "sea")
    told = [
        *ASK, first.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "blue"},
    ]  # fmt: skip
    after = client.chat.completions.create(
        model="soup", messages=told, tools=[TOOL], tool_choice="auto", max_tokens=8
    )
    assert after.choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_a_streamed_call(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="soup", messages=ASK, tools=[TOOL], tool_choice="required", max_tokens=800,
        parallel_tool_calls=False,
    ) as stream:  # fmt: skip
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls or []
    assert calls
    assert all(json.loads(call.function.arguments)["at"] for call in calls)


def test_completions(client: OpenAI) -> None:
    answer = client.completions.create(
        model="soup", prompt=["The engine", "The gateway"], max_tokens=4, echo=True, logprobs=1,
        temperature=0,
    )  # fmt: skip
    assert [choice.text[:4] for choice in answer.choices] == ["The ", "The "]
    assert answer.choices[0].logprobs is not None
    streamed = client.completions.create(
        model="soup", prompt="The engine", max_tokens=4, temperature=0, stream=True
    )
    text = "".join(chunk.choices[0].text for chunk in streamed)
    assert "The engine" + text == answer.choices[0].text


def test_embeddings(client: OpenAI) -> None:
    answer = client.embeddings.create(model="soup", input=["The engine", "The engine", "A gate"])
    first, again, other = (data.embedding for data in answer.data)
    assert first == again != other
    assert sum(value**2 for value in first) == pytest.approx(1, abs=1e-5)


def test_responses(client: OpenAI) -> None:
    settings: dict[str, Any] = {
        "model": "soup", "input": "Is it?", "instructions": "Be brief.", "temperature": 0,
        "extra_body": YES_OR_NO,
    }  # fmt: skip
    answer = client.responses.create(**settings, store=False)
    with client.responses.stream(**settings) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    cut = client.responses.create(model="soup", input="What?", max_output_tokens=2)
    assert final.output_text == answer.output_text
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert (answer.status, cut.status) == ("completed", "incomplete")
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"


def test_responses_with_a_tool_and_its_result(client: OpenAI) -> None:
    first = client.responses.create(
        model="soup", input="Look.", tools=[FLAT_TOOL], tool_choice="required",
        max_output_tokens=800, parallel_tool_calls=False,
    )  # fmt: skip
    (call,) = [item for item in first.output if item.type == "function_call"]
    told: list[Any] = [{"role": "user", "content": "Look."}, *first.output]
    told.append({"type": "function_call_output", "call_id": call.call_id, "output": "blue"})
    after = client.responses.create(
        model="soup", input=told, tools=[FLAT_TOOL], max_output_tokens=8
    )
    assert json.loads(call.arguments)["at"] in ("sky", "sea")
    assert after.id != first.id


def test_responses_parsed(client: OpenAI) -> None:
    answer = client.responses.parse(
        model="soup", input="How is it?", text_format=Mood, max_output_tokens=800
    )
    assert isinstance(answer.output_parsed, Mood)


def test_errors_are_the_clients_own(client: OpenAI, server: Any) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=ASK)
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="soup", messages=ASK, temperature=1000)
    assert refused.value.param == "temperature"
    # An engine that stores no responses answers 400; a gateway cannot know that, and answers 404.
    with pytest.raises((openai.BadRequestError, openai.NotFoundError)):
        client.responses.create(model="soup", input="x", previous_response_id="resp_1")
    with (
        OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_a_deadline_is_an_error_of_the_server(client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as late:
        client.chat.completions.create(
            model="soup", messages=ASK, extra_headers={"x-request-timeout-s": "0"}
        )
    assert late.value.status_code == 504


def test_a_stream_can_be_left(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="soup", messages=ASK, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()
    assert client.models.list().data


def test_the_request_id_is_told(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="soup", messages=ASK, max_tokens=1, extra_headers={"x-request-id": "mine"}
    )
    assert raw.headers["x-request-id"] == "mine"
    assert raw.parse().id == "chatcmpl-mine"
