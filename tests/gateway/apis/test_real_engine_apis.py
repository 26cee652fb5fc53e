"""Each API of Penstock's engine through the gateway: answers, streams, and the tokens that are counted."""

import json
from dataclasses import replace

import pytest
from tests.engine_server import launched_engine

from penstock.core.routing.apis import APIS
from penstock.core.routing.pick import Endpoint
from penstock.observability.metrics import gateway as specs
from penstock_engine.server.routes import openapi

pytestmark = pytest.mark.slow

model_dir = launched_engine.model_dir
launch = launched_engine.launch

CHAT = [{"role": "user", "content": "What is a penstock?"}]
GREEDY = {"temperature": 0, "max_tokens": 4}
BODIES = {
    "/v1/chat/completions": {"messages": CHAT} | GREEDY,
    "/v1/completions": {"prompt": "water", "ignore_eos": True} | GREEDY,
    "/v1/chat/completions/batch": {"messages": [CHAT, CHAT]} | GREEDY,
    "/v1/responses": {"input": "What is a penstock?", "temperature": 0, "max_output_tokens": 4},
    "/v1/messages": {"messages": CHAT, "system": "Be brief."} | GREEDY,
    "/v1/messages/count_tokens": {"messages": CHAT},
    "/v1/embeddings": {"input": ["water", "steam"]},
    "/pooling": {"input": "water"},
    "/tokenize": {"prompt": "water"},
    "/detokenize": {"tokens": [40, 41]},
    "/invocations": {"prompt": "water"} | GREEDY,
}
LAST_LINES = {
    "/v1/chat/completions": b"data: [DONE]\n",
    "/v1/completions": b"data: [DONE]\n",
    "/v1/responses": b"event: response.incomplete\n",
    "/v1/messages": b"event: message_stop\n",
    "/invocations": b"data: [DONE]\n",
}
"""The line of the last event, by which the gateway knows that a stream is whole."""
HAS_USAGE_OPTION = ("/v1/chat/completions", "/v1/completions", "/invocations")
# Fields that differ between two answers to the same request.
OWN = ("id", "created", "created_at", "metrics")


@pytest.fixture(scope="module")
def engine(launch):
    return launch("--max-model-len", "256", "--enable-prompt-tokens-details")[0]


@pytest.fixture
async def front(engine, start_gateway, make_service):
    """A gateway in front of one engine."""
    front = await start_gateway(wait_for_endpoint_s=60.0)
    endpoint = Endpoint("default/engine-0", f"127.0.0.1:{engine.base_url.port}", "r1")
    front.publish(replace(make_service(served_name="soup"), endpoints=(endpoint,)))
    return front


def without_own(body):
    """An answer without its own fields, nor those of its items."""
    answer = {name: value for name, value in json.loads(body).items() if name not in OWN}
    if "output" in answer:
        answer["output"] = [{**item, "id": ""} for item in answer["output"]]
    return answer


def usage_of(body):
    """Prompt and output tokens of an answer or of the events of a stream; the last ones count."""
    found = {}
    for line in body.decode().splitlines():
        data = line.removeprefix("data: ")
        if data.startswith("{"):
            event = json.loads(data)
            inner = event.get("message") or event.get("response") or {}
            found |= event.get("usage") or inner.get("usage") or {}
    prompt = found.get("prompt_tokens", found.get("input_tokens", 0))
    return (
        prompt + found.get("cache_read_input_tokens", 0),
        found.get("completion_tokens", found.get("output_tokens", 0)),
    )


async def counted(front):
    """Prompt and output tokens that the gateway has counted."""
    return [await front.metric(specs.TOKENS_TOTAL.name, kind=kind) for kind in ("prompt", "output")]


async def test_answers_are_those_of_the_engine_and_their_tokens_are_counted(front, engine):
    assert set(BODIES) == {spec.path for spec in openapi.ROUTES} & {api.path for api in APIS}
    for path, body in BODIES.items():
        before = await counted(front)
        status, got = await front.ask(path, model="soup", stream=False, **body)
        direct = engine.post(path, json=body | {"model": "soup"})
        assert (path, status, direct.status_code) == (path, 200, 200)
        answer, expected = without_own(got), without_own(direct.content)
        if "usage" not in answer:  # text is not generated
            assert answer == expected
            assert await counted(front) == before
            continue
        assert {**answer, "usage": 0} == {**expected, "usage": 0}
        after = await counted(front)
        assert (after[0] - before[0], after[1] - before[1]) == usage_of(got)
        assert usage_of(got)[0] > 0


@pytest.mark.parametrize(("path", "end"), LAST_LINES.items())
async def test_streams_end_with_the_last_event_of_their_api(front, path, end):
    options = {"stream_options": {"include_usage": True}} if path in HAS_USAGE_OPTION else {}
    before = await counted(front)
    status, got = await front.ask(path, model="soup", **BODIES[path], **options)
    assert (status, got.count(end), b'"error":{' in got.replace(b" ", b"")) == (200, 1, False)
    assert await front.metric(specs.STREAMS_CUT.name) == 0
    prompt, output = await counted(front)
    assert (prompt - before[0], output - before[1]) == usage_of(got)
    assert usage_of(got)[1] > 0


async def test_errors_of_the_engine_have_its_own_form(front):
    status, got = await front.ask("/v1/messages", model="soup", messages=[], max_tokens=1)
    assert (status, json.loads(got)["error"]["type"]) == (400, "invalid_request_error")
    status, got = await front.ask("/v1/rerank", model="soup", query="a", documents=["b"])
    assert (status, json.loads(got)["error"]["type"]) == (404, "NotFoundError")
