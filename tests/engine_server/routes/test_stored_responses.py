"""Tests of /v1/responses with a store: retrieve, continue, background, cancel, eviction."""

import asyncio
import json
import time
from contextlib import nullcontext
from typing import Any

import httpx
import pytest

from penstock_engine.server.handlers.response_store import ResponseStore
from penstock_engine.server.routes.responses.answer import ResponsesDialect
from penstock_engine.server.transport.errors import RequestError

ASK = "What is a penstock?"
BODY: dict[str, Any] = {"model": "soup", "input": ASK, "max_output_tokens": 12, "temperature": 0}
ITEMS = [{"type": "message", "role": "user", "content": ASK}]


@pytest.fixture(scope="module")
def storing(launch: Any) -> httpx.Client:
    client: httpx.Client
    client, _ = launch("--max-model-len", "2048", "--enable-responses-store")
    return client


def create(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/responses", json=BODY | body)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


def read(client: httpx.Client, response_id: str) -> dict[str, Any]:
    answer = client.get(f"/v1/responses/{response_id}")
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


def wait_until_ended(client: httpx.Client, response_id: str) -> dict[str, Any]:
    response = read(client, response_id)
    while response["status"] in ("queued", "in_progress"):
        time.sleep(0.02)
        response = read(client, response_id)
    return response


def test_a_response_can_be_retrieved(storing: httpx.Client) -> None:
    response = create(storing)
    assert response["store"] is True
    assert read(storing, response["id"]) == response


def test_a_streamed_response_can_be_retrieved(storing: httpx.Client) -> None:
    answer = storing.post("/v1/responses", json=BODY | {"stream": True})
    last = json.loads(answer.text.strip().split("\n\n")[-1].partition("data: ")[2])
    assert read(storing, last["response"]["id"]) == last["response"]


def test_clients_cannot_choose_response_ids(storing: httpx.Client) -> None:
    first, second = (
        storing.post("/v1/responses", json=BODY, headers={"X-Request-Id": "mine"}).json()["id"]
        for _ in range(2)
    )
    assert first != second
    assert "mine" not in first
    assert len(first) >= 40


def test_an_id_has_the_pods_key_of_a_gateway_and_nothing_else_of_its_proposal(
    storing: httpx.Client,
) -> None:
    proposed = "resp_" + "0" * 48 + "0123456789abcdef"
    first, second = (create(storing, request_id=proposed)["id"] for _ in range(2))
    assert {first[53:], second[53:]} == {"0123456789abcdef"}
    assert len({first[:53], second[:53], proposed[:53]}) == 3
    assert read(storing, first)["id"] == first
    for other in ("mine", proposed + "0", "resp_" + "0" * 48):
        assert len(create(storing, request_id=other)["id"]) == 53


def test_store_false_is_obeyed(storing: httpx.Client) -> None:
    response = create(storing, store=False)
    assert response["store"] is False
    assert storing.get(f"/v1/responses/{response['id']}").status_code == 404


@pytest.mark.parametrize("method", ["get", "post"])
def test_an_unknown_id_is_a_404_in_openais_format(storing: httpx.Client, method: str) -> None:
    path = "/v1/responses/resp_nobody" + ("/cancel" if method == "post" else "")
    answer = storing.request(method, path)
    assert answer.status_code == 404
    assert answer.json()["error"] == {
        "message": "Response with id 'resp_nobody' not found.", "type": "NotFoundError",
        "param": "response_id", "code": 404,
    }  # fmt: skip


def test_previous_response_id_continues_a_conversation(storing: httpx.Client) -> None:
    """The next turn has the earlier input and output, but not the earlier instructions."""
    first = create(storing, instructions="Be brief.")
    second = create(storing, previous_response_id=first["id"], input="Why?")
    third = create(
        storing, previous_response_id=second["id"], input=[{"role": "user", "content": "So?"}]
    )
    texts = [turn["output"][0]["content"][0]["text"] for turn in (first, second)]
    items = [
        {"role": "user", "content": ASK}, {"role": "assistant", "content": texts[0]},
        {"role": "user", "content": "Why?"}, {"role": "assistant", "content": texts[1]},
        {"role": "user", "content": "So?"},
    ]  # fmt: skip
    assert second["previous_response_id"] == first["id"]
    for response, num_items in ((second, 3), (third, 5)):
        plain = create(storing, input=items[:num_items], store=False)
        assert response["usage"]["input_tokens"] == plain["usage"]["input_tokens"]
        assert response["output"][0]["content"] == plain["output"][0]["content"]


def test_a_response_that_is_not_stored_can_continue_one(storing: httpx.Client) -> None:
    first = create(storing)
    second = create(storing, previous_response_id=first["id"], input="Why?", store=False)
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]


def test_an_unknown_response_cannot_be_continued(storing: httpx.Client) -> None:
    answer = storing.post("/v1/responses", json=BODY | {"previous_response_id": "resp_nobody"})
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "previous_response_id"


def test_a_background_response_is_computed_and_stored(storing: httpx.Client) -> None:
    queued = create(storing, background=True)
    assert (queued["status"], queued["output"], queued["background"]) == ("queued", [], True)
    assert queued["model"] == "soup"
    response, plain = wait_until_ended(storing, queued["id"]), create(storing)
    assert response["status"] == plain["status"]
    assert response["output"][0]["content"] == plain["output"][0]["content"]
    assert response["usage"]["output_tokens"] == plain["usage"]["output_tokens"]
    rejected = storing.post(f"/v1/responses/{queued['id']}/cancel")
    assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "response_id")


def test_a_background_response_can_be_cancelled(storing: httpx.Client) -> None:
    queued = create(storing, background=True, max_output_tokens=1900, ignore_eos=True)
    early = storing.post("/v1/responses", json=BODY | {"previous_response_id": queued["id"]})
    cancelled = storing.post(f"/v1/responses/{queued['id']}/cancel")
    assert cancelled.status_code == 200, cancelled.text
    assert cancelled.json()["status"] == "cancelled"
    assert read(storing, queued["id"])["status"] == "cancelled"
    assert early.status_code == 400
    assert "still running" in early.json()["error"]["message"]
    while storing.get("/load").json() != {"server_load": 0}:
        time.sleep(0.02)


def test_a_failed_background_response_has_its_error(storing: httpx.Client) -> None:
    body = BODY | {"background": True, "max_output_tokens": 1900, "ignore_eos": True}
    queued = storing.post("/v1/responses", json=body, headers={"X-Request-Timeout-S": "0.3"})
    response = wait_until_ended(storing, queued.json()["id"])
    assert (response["status"], response["output"], response["model"]) == ("failed", [], "soup")
    assert response["error"]["code"] == "deadline_exceeded"
    assert "deadline" in response["error"]["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"background": True, "store": False}, "background needs store: true"),
        ({"background": True, "stream": True}, "background needs stream: false"),
        ({"background": True, "temperature": 1000}, "temperature"),
        ({"background": True, "max_output_tokens": 10**6}, "maximum context length"),
    ],
)
def test_invalid_background_requests_are_rejected(
    storing: httpx.Client, body: dict[str, Any], message: str
) -> None:
    answer = storing.post("/v1/responses", json=BODY | body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize("query", ["stream=true", "starting_after=3"])
def test_events_are_not_stored(storing: httpx.Client, query: str) -> None:
    response = create(storing)
    assert storing.get(f"/v1/responses/{response['id']}?{query}").status_code == 400


def test_the_openapi_document_has_the_routes_if_responses_are_stored(
    storing: httpx.Client, client: httpx.Client
) -> None:
    path = "/v1/responses/{response_id}"
    assert path in storing.get("/openapi.json").json()["paths"]
    assert path not in client.get("/openapi.json").json()["paths"]


def put(store: ResponseStore, name: str, status: str = "completed", size: int = 1) -> None:
    store.put({"id": name, "status": status, "output": "x" * size}, ITEMS)


def stored_names(store: ResponseStore, *names: str) -> list[str]:
    found = []
    for name in names:
        try:
            store.get(name)
        except RequestError:
            continue
        found.append(name)
    return found


def test_the_oldest_responses_are_dropped_first() -> None:
    store = ResponseStore(max_responses=2)
    for name in ("a", "b"):
        put(store, name)
    put(store, "a")  # its age is that of its first state
    put(store, "c")
    assert stored_names(store, "a", "b", "c") == ["b", "c"]


def test_the_size_of_the_store_is_limited() -> None:
    store = ResponseStore(max_bytes=1500)
    for name in ("a", "b", "c"):
        put(store, name, size=500)
    assert stored_names(store, "a", "b", "c") == ["b", "c"]
    put(store, "b", size=1)
    put(store, "d", size=500)
    assert stored_names(store, "b", "c", "d") == ["b", "c", "d"]
    put(store, "e", size=2000)
    assert stored_names(store, "b", "c", "d", "e") == []


def test_running_responses_are_not_dropped() -> None:
    store = ResponseStore(max_responses=1)
    put(store, "a", "in_progress")
    put(store, "b")
    assert stored_names(store, "a", "b") == ["a"]


@pytest.mark.parametrize(("num_chars", "is_rejected"), [(3 * 2**20, False), (5 * 2**20, True)])
def test_a_conversation_has_the_size_limit_of_a_body(num_chars: int, is_rejected: bool) -> None:
    """The limit holds for the whole conversation, even if each of its turns is smaller."""
    store = ResponseStore()
    message = {"type": "message", "role": "user", "content": "x" * num_chars}
    store.put({"id": "a", "status": "completed"}, [message])
    body = json.dumps({"input": message["content"], "previous_response_id": "a"}).encode()
    context = pytest.raises(RequestError, match="too large") if is_rejected else nullcontext()
    with context as error:
        ResponsesDialect("b", 0, store).read(body, {})
    if error is not None:
        assert (error.value.status, error.value.param) == (413, "previous_response_id")


async def test_a_cancelled_response_stays_cancelled() -> None:
    store = ResponseStore()
    put(store, "a", "in_progress")
    task = store.start("a", asyncio.sleep(60))
    assert json.loads(await store.cancel("a"))["status"] == "cancelled"
    assert task.cancelled()
    put(store, "a")
    assert store.get("a").status == "cancelled"
    assert store.history("a", 1024) == ITEMS


async def test_close_cancels_running_tasks() -> None:
    store = ResponseStore()
    task = store.start("a", asyncio.sleep(60))
    await store.close()
    assert task.cancelled()
