"""A tour of the engine with litellm. Runs in an environment of its own: python FILE URL KEY."""

import asyncio
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched

import litellm

litellm.suppress_debug_info = True

ASK = [{"role": "user", "content": "What is a penstock?"}]
MODEL = "hosted_vllm/soup"
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"at": {"enum": ["sky", "sea"]}},
            "required": ["at"],
            "maxProperties": 1,  # litellm takes additionalProperties away
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"mood": {"enum": ["calm", "wild"]}},
    "required": ["mood"],
    "additionalProperties": False,
}


def tour(url: str, key: str) -> None:
    at = {"model": MODEL, "api_base": f"{url}/v1", "api_key": key, "num_retries": 0}

    whole = litellm.completion(**at, messages=ASK, max_tokens=8, temperature=0, seed=3)
    chunks = list(
        litellm.completion(
            **at, messages=ASK, max_tokens=8, temperature=0, seed=3, stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert whole.usage.completion_tokens == 8 or whole.choices[0].finish_reason == "stop"
    print("chat, whole and streamed")

    several = litellm.completion(**at, messages=ASK, max_tokens=2, n=2, logprobs=True)
    assert len(several.choices) == 2
    print("several choices with log-probabilities")

    schema = {"type": "json_schema", "json_schema": {"name": "mood", "schema": SCHEMA}}
    formed = litellm.completion(**at, messages=ASK, max_tokens=800, response_format=schema)
    assert json.loads(formed.choices[0].message.content)["mood"] in ("calm", "wild")
    print("structured output")

    called = litellm.completion(
        **at,
        messages=ASK,
        max_tokens=800,
        tools=[TOOL],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    calls = called.choices[0].message.tool_calls
    assert all(json.loads(call.function.arguments)["at"] in ("sky", "sea") for call in calls)
    told = [*ASK, called.choices[0].message.model_dump()]
    told += [{"role": "tool", "tool_call_id": call.id, "content": "blue"} for call in calls]
    litellm.completion(**at, messages=told, max_tokens=4, tools=[TOOL])
    print("a tool is called and answered")

    completed = litellm.text_completion(
        model="text-completion-openai/soup", api_base=f"{url}/v1", api_key=key,
        prompt="The engine", max_tokens=4,
    )  # fmt: skip
    assert completed.choices[0].text
    print("completion of a text")

    answered = litellm.responses(
        model="openai/soup", api_base=f"{url}/v1", api_key=key, input="What?", max_output_tokens=4
    )
    assert answered.status in ("completed", "incomplete")
    print("the Responses API")

    async def stream_on() -> int:
        stream = await litellm.acompletion(**at, messages=ASK, max_tokens=4, stream=True)
        return len([chunk async for chunk in stream])

    assert asyncio.run(stream_on()) > 1
    print("an asynchronous stream")

    for wrong, kind in (
        ({"model": "hosted_vllm/other"}, litellm.NotFoundError),
        ({"api_key": "wrong"}, litellm.AuthenticationError),
    ):
        try:
            litellm.completion(**{**at, **wrong}, messages=ASK)
        except kind:
            continue
        raise AssertionError(f"{wrong} was served")
    print("errors of its own")


if __name__ == "__main__":
    tour(sys.argv[1], sys.argv[2])
