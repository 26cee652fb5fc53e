"""OpenAI's and Anthropic's client libraries raise the gateway's errors, whole and in streams."""

import json

import anthropic
import openai
import pytest
from tests.gateway.engine_answers import stream

from penstock.gateway.apis.response_id import pod_key

CREATED = (
    b'event: response.created\ndata: {"type": "response.created", "response": {"id": "r"}}\n\n'
)
START = (
    b'event: message_start\ndata: {"type": "message_start", "message": {"id": "m", "type": "message", '
    b'"role": "assistant", "model": "chat", "content": [], "usage": {"input_tokens": 1, '
    b'"output_tokens": 1}}}\n\n'
)
CUT = "the engine's response was cut off"


@pytest.fixture
async def clients(start_engine, start_gateway):
    """Makes clients of a gateway whose engine behaves in a given way. They do not repeat requests."""
    opened = []

    async def make(behavior):
        front = await start_gateway(await start_engine(behavior))
        options = {"api_key": "key", "max_retries": 0}
        pair = (
            openai.AsyncOpenAI(base_url=front.url + "/v1", **options),
            anthropic.AsyncAnthropic(base_url=front.url, **options),
        )
        opened.extend(pair)
        return pair

    yield make
    for client in opened:
        await client.close()


async def test_response_that_is_cut_off_raises(clients):
    client, _ = await clients(stream(CREATED))
    events = await client.responses.create(model="chat", input="x", stream=True)
    with pytest.raises(openai.APIError) as error:
        [event async for event in events]
    assert error.value.message == CUT


async def test_message_that_is_cut_off_raises(clients):
    _, client = await clients(stream(START))
    events = await client.messages.create(
        model="chat", max_tokens=1, messages=[{"role": "user", "content": "x"}], stream=True
    )
    with pytest.raises(anthropic.APIStatusError) as error:
        [event async for event in events]
    assert error.value.body == {"type": "error", "error": {"type": "api_error", "message": CUT}}


async def test_unknown_model_raises_with_the_names_that_there_are(clients):
    client, other = await clients(stream(START))
    message = "the model `no` does not exist: there are chat"
    with pytest.raises(openai.NotFoundError) as error:
        await client.responses.create(model="no", input="x")
    assert (error.value.body["message"], error.value.code) == (message, "model_not_found")
    with pytest.raises(anthropic.NotFoundError) as error:
        await other.messages.count_tokens(model="no", messages=[{"role": "user", "content": "x"}])
    assert error.value.body["error"] == {"type": "not_found_error", "message": message}


async def test_stored_responses_are_read_cancelled_and_deleted(clients):
    asked = []

    async def behave(request):
        asked.append((request.method, request.path))
        await request.whole(json.dumps({"id": "r", "object": "response", "data": []}).encode())

    client, _ = await clients(behave)
    response_id = "resp_" + "0" * 48 + pod_key("default/engine-0", "")
    await client.responses.retrieve(response_id)
    await client.responses.cancel(response_id)
    await client.responses.input_items.list(response_id)
    await client.responses.delete(response_id)
    path = "/v1/responses/" + response_id
    assert asked == [
        ("GET", path), ("POST", path + "/cancel"), ("GET", path + "/input_items"), ("DELETE", path),
    ]  # fmt: skip
    with pytest.raises(openai.NotFoundError) as error:
        await client.responses.retrieve("resp_1")
    assert error.value.code == "response_not_found"
