"""/v1/responses with a store: read again, continued, in the background, cancelled, forgotten."""

import asyncio
import json
import time
from contextlib import nullcontext
from typing import Any

import httpx
import pytest

from penstock_engine.server.errors import RequestError
from penstock_engine.server.responses.answer import ResponsesDialect
from penstock_engine.server.responses.store import ResponseStore

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


def when_ended(client: httpx.Client, response_id: str) -> dict[str, Any]:
    response = read(client, response_id)
    while response["status"] in ("queued", "in_progress"):
        time.sleep(0.02)
        response = read(client, response_id)
    return response


def test_a_response_is_read_again(storing: httpx.Client) -> None:
    told = create(storing)
    assert told["store"] is True
    assert read(storing, told["id"]) == told


def test_a_streamed_response_is_read_again(storing: httpx.Client) -> None:
    answer = storing.post("/v1/responses", json=BODY | {"stream": True})
    last = json.loads(answer.text.strip().split("\n\n")[-1].partition("data: ")[2])
    assert read(storing, last["response"]["id"]) == last["response"]


def test_ids_are_not_what_clients_choose(storing: httpx.Client) -> None:
    first, second = (
        storing.post("/v1/responses", json=BODY, headers={"X-Request-Id": "mine"}).json()["id"]
        for _ in range(2)
    )
    assert first != second
    assert "mine" not in first
    assert len(first) >= 40


def test_what_is_not_to_be_stored_is_not(storing: httpx.Client) -> None:
    told = create(storing, store=False)
    assert told["store"] is False
    assert storing.get(f"/v1/responses/{told['id']}").status_code == 404


@pytest.mark.parametrize("method", ["get", "post"])
def test_an_unknown_id_is_an_error_of_openais_form(storing: httpx.Client, method: str) -> None:
    path = "/v1/responses/resp_nobody" + ("/cancel" if method == "post" else "")
    answer = storing.request(method, path)
    assert answer.status_code == 404
    assert answer.json()["error"] == {
        "message": "Response with id 'resp_nobody' not found.", "type": "NotFoundError",
        "param": "response_id", "code": 404,
    }  # fmt: skip


def test_a_response_is_continued(storing: httpx.Client) -> None:
    """The next turn has what was said before it, but not its instructions."""
    first = create(storing, instructions="Be brief.")
    second = create(storing, previous_response_id=first["id"], input="Why?")
    third = create(
        storing, previous_response_id=second["id"], input=[{"role": "user", "content": "So?"}]
    )
    said = [turn["output"][0]["content"][0]["text"] for turn in (first, second)]
    items = [
        {"role": "user", "content": ASK}, {"role": "assistant", "content": said[0]},
        {"role": "user", "content": "Why?"}, {"role": "assistant", "content": said[1]},
        {"role": "user", "content": "So?"},
    ]  # fmt: skip
    assert second["previous_response_id"] == first["id"]
    for told, num_items in ((second, 3), (third, 5)):
        plain = create(storing, input=items[:num_items], store=False)
        assert told["usage"]["input_tokens"] == plain["usage"]["input_tokens"]
        assert told["output"][0]["content"] == plain["output"][0]["content"]


def test_a_response_that_is_not_stored_can_continue_one(storing: httpx.Client) -> None:
    first = create(storing)
    second = create(storing, previous_response_id=first["id"], input="Why?", store=False)
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]


def test_an_unknown_response_cannot_be_continued(storing: httpx.Client) -> None:
    answer = storing.post("/v1/responses", json=BODY | {"previous_response_id": "resp_nobody"})
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "previous_response_id"


def test_a_response_in_the_background(storing: httpx.Client) -> None:
    begun = create(storing, background=True)
    assert (begun["status"], begun["output"], begun["background"]) == ("queued", [], True)
    assert begun["model"] == "soup"
    told, plain = when_ended(storing, begun["id"]), create(storing)
    assert told["status"] == plain["status"]
    assert told["output"][0]["content"] == plain["output"][0]["content"]
    assert told["usage"]["output_tokens"] == plain["usage"]["output_tokens"]
    refused = storing.post(f"/v1/responses/{begun['id']}/cancel")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "response_id")


def test_a_response_in_the_background_is_cancelled(storing: httpx.Client) -> None:
    begun = create(storing, background=True, max_output_tokens=1900, ignore_eos=True)
    early = storing.post("/v1/responses", json=BODY | {"previous_response_id": begun["id"]})
    cancelled = storing.post(f"/v1/responses/{begun['id']}/cancel")
    assert cancelled.status_code == 200, cancelled.text
    assert cancelled.json()["status"] == "cancelled"
    assert read(storing, begun["id"])["status"] == "cancelled"
    assert early.status_code == 400
    assert "still running" in early.json()["error"]["message"]
    while storing.get("/load").json() != {"server_load": 0}:
        time.sleep(0.02)


def test_a_response_in_the_background_that_fails_says_why(storing: httpx.Client) -> None:
    body = BODY | {"background": True, "max_output_tokens": 1900, "ignore_eos": True}
    begun = storing.post("/v1/responses", json=body, headers={"X-Request-Timeout-S": "0.3"})
    told = when_ended(storing, begun.json()["id"])
    assert (told["status"], told["output"], told["model"]) == ("failed", [], "soup")
    assert told["error"]["code"] == "server_error"
    assert "deadline" in told["error"]["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"background": True, "store": False}, "background needs store: true"),
        ({"background": True, "stream": True}, "background needs stream: false"),
        ({"background": True, "temperature": 1000}, "temperature"),
        ({"background": True, "max_output_tokens": 10**6}, "maximum context length"),
    ],
)
def test_what_cannot_run_in_the_background(
    storing: httpx.Client, body: dict[str, Any], message: str
) -> None:
    answer = storing.post("/v1/responses", json=BODY | body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize("query", ["stream=true", "starting_after=3"])
def test_events_are_not_stored(storing: httpx.Client, query: str) -> None:
    told = create(storing)
    assert storing.get(f"/v1/responses/{told['id']}?{query}").status_code == 400


def test_the_routes_are_described(storing: httpx.Client, client: httpx.Client) -> None:
    path = "/v1/responses/{response_id}"
    assert path in storing.get("/openapi.json").json()["paths"]
    assert path not in client.get("/openapi.json").json()["paths"]


def put(store: ResponseStore, name: str, status: str = "completed", size: int = 1) -> None:
    store.put({"id": name, "status": status, "output": "x" * size}, ITEMS)


def known(store: ResponseStore, *names: str) -> list[str]:
    found = []
    for name in names:
        try:
            store.get(name)
        except RequestError:
            continue
        found.append(name)
    return found


def test_the_oldest_are_forgotten_first() -> None:
    store = ResponseStore(max_responses=2)
    for name in ("a", "b"):
        put(store, name)
    put(store, "a")  # its place is that of its first state
    put(store, "c")
    assert known(store, "a", "b", "c") == ["b", "c"]


def test_bytes_are_bounded() -> None:
    store = ResponseStore(max_bytes=1500)
    for name in ("a", "b", "c"):
        put(store, name, size=500)
    assert known(store, "a", "b", "c") == ["b", "c"]
    put(store, "b", size=1)
    put(store, "d", size=500)
    assert known(store, "b", "c", "d") == ["b", "c", "d"]
    put(store, "e", size=2000)
    assert known(store, "b", "c", "d", "e") == []


def test_what_runs_is_not_forgotten() -> None:
    store = ResponseStore(max_responses=1)
    put(store, "a", "in_progress")
    put(store, "b")
    assert known(store, "a", "b") == ["a"]


@pytest.mark.parametrize(("num_chars", "is_refused"), [(3 * 2**20, False), (5 * 2**20, True)])
def test_a_conversation_is_no_larger_than_a_body_may_be(num_chars: int, is_refused: bool) -> None:
    """Even when each of its turns is."""
    store = ResponseStore()
    said = {"type": "message", "role": "user", "content": "x" * num_chars}
    store.put({"id": "a", "status": "completed"}, [said])
    body = json.dumps({"input": said["content"], "previous_response_id": "a"}).encode()
    refused = pytest.raises(RequestError, match="too large") if is_refused else nullcontext()
    with refused as told:
        ResponsesDialect("b", 0, store).read(body, {})
    if told is not None:
        assert (told.value.status, told.value.param) == (413, "previous_response_id")


async def test_what_was_cancelled_stays_so() -> None:
    store = ResponseStore()
    put(store, "a", "in_progress")
    task = store.start("a", asyncio.sleep(60))
    assert json.loads(await store.cancel("a"))["status"] == "cancelled"
    assert task.cancelled()
    put(store, "a")
    assert store.get("a").status == "cancelled"
    assert store.history("a", 1024) == ITEMS


async def test_closing_ends_what_runs() -> None:
    store = ResponseStore()
    task = store.start("a", asyncio.sleep(60))
    await store.close()
    assert task.cancelled()
