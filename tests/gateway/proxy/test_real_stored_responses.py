"""Stored responses of real engines, several replicas behind two gateways."""

import asyncio
import json
from dataclasses import replace

import pytest
from tests.engine_server import launched_engine

from penstock.core.routing.pick import Endpoint
from penstock.gateway.apis.response_id import key_of, pod_key

pytestmark = pytest.mark.slow

model_dir = launched_engine.model_dir
launch = launched_engine.launch

PATH = "/v1/responses"
ASK = {"model": "soup", "input": "What is a penstock?", "temperature": 0}


@pytest.fixture(scope="module")
def engines(launch):
    flags = "--max-model-len", "512", "--enable-responses-store"
    return [
        Endpoint(f"default/engine-{n}", f"127.0.0.1:{launch(*flags)[0].base_url.port}", "r1")
        for n in range(2)
    ]


async def create(front, **fields):
    body = {"max_output_tokens": 8, "stream": False} | ASK | fields
    status, answer = await front.ask(PATH, **body)
    assert status == 200, answer
    return answer


async def about(front, path, method="GET"):
    async with front.client.request(method, f"{front.url}{PATH}/{path}") as got:
        return got.status, json.loads(await got.read())


async def ended(front, response_id):
    """The response once it is not computed any more."""
    _, response = await about(front, response_id)
    while response["status"] in ("queued", "in_progress"):
        await asyncio.sleep(0.02)
        _, response = await about(front, response_id)
    return response


async def test_responses_are_read_continued_and_cancelled_where_they_are(
    engines, start_gateway, make_service
):
    fronts = [await start_gateway(wait_for_endpoint_s=60.0) for _ in range(2)]
    for front in fronts:
        front.publish(replace(make_service(served_name="soup"), endpoints=tuple(engines)))
    first, second = fronts
    pods = {pod_key(engine.pod, "") for engine in engines}
    responses = [json.loads(await create(first)) for _ in range(8)]
    assert {key_of(each["id"]) for each in responses} == pods
    for response in responses:
        assert await about(second, response["id"]) == (200, response)
        continued = json.loads(
            await create(second, input="And?", previous_response_id=response["id"])
        )
        assert key_of(continued["id"]) == key_of(response["id"])
        assert continued["usage"]["input_tokens"] > response["usage"]["input_tokens"]
    events = (await create(first, stream=True)).strip().split(b"\n\n")
    last = json.loads(events[-1].partition(b"data: ")[2])
    assert last["type"] in ("response.completed", "response.incomplete")
    assert await about(second, last["response"]["id"]) == (200, last["response"])
    background = [json.loads(await create(first, background=True)) for _ in range(4)]
    for response in background:
        assert response["status"] == "queued"
        assert (await ended(second, response["id"]))["usage"]["output_tokens"] > 0
    long = json.loads(await create(first, background=True, max_output_tokens=400, ignore_eos=True))
    status, cancelled = await about(second, long["id"] + "/cancel", "POST")
    assert (status, cancelled["status"]) == (200, "cancelled")
    assert await about(second, "resp_" + "0" * 48 + pod_key(engines[0].pod, "")) == (
        404,
        {
            "error": {
                "message": f"Response with id 'resp_{'0' * 48}{pod_key(engines[0].pod, '')}' not found.",
                "type": "NotFoundError", "param": "response_id", "code": 404,
            }
        },
    )  # fmt: skip
    for front in fronts:
        await front.idle()
