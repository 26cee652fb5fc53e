"""Batches by OpenAI's client: what may be asked for, and pages of them."""

from typing import Any

import aiohttp
import openai
import pytest
from tests.batch.conftest import PATH, TOKEN, Start, create, lines, until_status, upload

from penstock.core.batches.shared_token import TENANT_HEADER

HEADERS = {"Authorization": f"Bearer {TOKEN}", TENANT_HEADER: "team"}


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"endpoint": "/v1/files"}, "endpoint"),
        ({"endpoint": "/tokenize"}, "endpoint"),
        ({"endpoint": ["/v1/completions"]}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": "../x"}, "input_file_id"),
        ({"input_file_id": None}, "input_file_id"),
        ({"metadata": {"k": 7}}, "metadata"),
        ({"metadata": {str(number): "v" for number in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"metadata": []}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after.seconds"),
        ({"output_expires_after": 7}, "output_expires_after.anchor"),
    ],
)  # fmt: skip
async def test_a_bad_batch_is_refused(
    start_server: Start, changed: dict[str, Any], param: str
) -> None:
    front = await start_server()
    fields = {
        "input_file_id": await upload(front.client(), lines("one")),
        "endpoint": PATH,
        "completion_window": "24h",
    }
    async with (
        aiohttp.ClientSession(headers=HEADERS) as session,
        session.post(f"{front.url}/v1/batches", json=fields | changed) as got,
    ):
        assert got.status == 400
        assert (await got.json())["error"]["param"] == param


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 100_000, b"x" * 70_000])
async def test_a_body_that_is_no_object_is_refused(start_server: Start, body: bytes) -> None:
    front = await start_server()
    async with (
        aiohttp.ClientSession(headers=HEADERS) as session,
        session.post(f"{front.url}/v1/batches", data=body) as got,
    ):
        assert got.status in (400, 413)
        assert "body" in (await got.json())["error"]["message"]


async def test_pages_of_batches(start_server: Start) -> None:
    client = (await start_server()).client()
    made = [(await create(client, lines("one"))).id for _ in range(3)]
    listed = [each.id async for each in client.batches.list(limit=2)]
    assert listed == made[::-1]


async def test_running_batches_are_bounded(start_server: Start) -> None:
    front = await start_server(max_running_batches=1, gateway_url="http://127.0.0.1:9")
    client = front.client()
    batch = await create(client, lines("one"))
    with pytest.raises(openai.RateLimitError, match="1 batches are running"):
        await create(client, lines("two"))
    with pytest.raises(openai.ConflictError, match="cancel it first"):
        await client.files.delete(batch.input_file_id)
    await client.batches.cancel(batch.id)
    await until_status(client, batch.id, "cancelled")
    await create(client, lines("two"))


async def test_results_beyond_the_bound_of_a_tenant_end_its_batches(start_server: Start) -> None:
    content = lines("one")
    front = await start_server(max_tenant_bytes=len(content) + 1)
    client = front.client()
    batch = await create(client, content)
    ended = await until_status(client, batch.id, "completed")
    with pytest.raises(openai.APIStatusError, match="delete some") as refused:
        await client.batches.create(
            input_file_id=batch.input_file_id, endpoint=PATH, completion_window="24h"
        )
    assert refused.value.status_code == 413
    await client.files.delete(ended.output_file_id or "")
    await client.batches.create(
        input_file_id=batch.input_file_id, endpoint=PATH, completion_window="24h"
    )


async def test_a_batch_that_has_ended_cannot_be_cancelled(start_server: Start) -> None:
    client = (await start_server()).client()
    batch = await create(client, lines("one"))
    await until_status(client, batch.id, "completed")
    with pytest.raises(openai.ConflictError, match="completed cannot be cancelled"):
        await client.batches.cancel(batch.id)
