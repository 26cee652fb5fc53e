"""Batches of a tenant whose files and results reach their bound."""

import asyncio

import openai
import pytest
from aiohttp import web
from tests.batch.conftest import (
    PATH,
    FakeGateway,
    Received,
    Start,
    create,
    lines,
    results,
    until,
    until_status,
    upload,
)

# Bytes of an answer, and of what a tenant may store: about four answers.
ANSWER_BYTES, BOUND_BYTES = 50_000, 200_000


async def test_no_line_is_sent_beyond_the_bound(
    start_server: Start, fake_gateway: FakeGateway
) -> None:
    may_answer, most_running = asyncio.Event(), 0

    async def behave(line: Received) -> web.Response:
        nonlocal most_running
        most_running = max(most_running, fake_gateway.num_running)
        await may_answer.wait()
        return web.json_response({"text": "x" * ANSWER_BYTES})

    fake_gateway.behavior = behave
    front = await start_server(max_tenant_bytes=BOUND_BYTES)
    client, other = front.client(), front.client("other")
    names = [str(number) for number in range(100)]
    batches = [await create(client, lines(*names)) for _ in range(5)]
    may_answer.set()
    num_completed = 0
    for each in batches:
        ended = await until_status(client, each.id, "failed")
        (error,) = ended.errors.data
        assert (error.code, error.line) == ("storage_full", None)
        assert f"{BOUND_BYTES} bytes" in error.message
        done = await results(client, ended.output_file_id)
        left = await results(client, ended.error_file_id)
        assert sorted([*done, *left]) == sorted(names)
        assert {each["error"]["code"] for each in left.values()} == {"storage_full"}
        assert {each["error"]["message"] for each in left.values()} == {error.message}
        assert ended.request_counts.completed == len(done)
        num_completed += len(done)
    assert 1 <= num_completed <= BOUND_BYTES // ANSWER_BYTES + most_running
    assert len(fake_gateway.received) == num_completed
    assert (
        await until_status(other, (await create(other, lines("a"))).id, "completed")
    ).failed_at is None


async def test_results_of_a_batch_that_runs_leave_less_for_files(
    start_server: Start, fake_gateway: FakeGateway
) -> None:
    may_end = asyncio.Event()

    async def behave(line: Received) -> web.Response:
        if line.prompt == "last":
            await may_end.wait()
        return web.json_response({"text": "x" * ANSWER_BYTES})

    fake_gateway.behavior = behave
    client = (await start_server(max_tenant_bytes=BOUND_BYTES)).client()
    batch = await create(client, lines("a", "b", "c", "d", "last"))

    async def are_done() -> bool:
        return (await client.batches.retrieve(batch.id)).request_counts.completed >= 3

    await until(are_done)
    with pytest.raises(openai.APIStatusError, match=f"{BOUND_BYTES} bytes") as refused:
        await upload(client, b"x" * (BOUND_BYTES - 3 * ANSWER_BYTES))
    assert refused.value.status_code == 413
    may_end.set()
    ended = await until_status(client, batch.id, "completed", "failed")
    await client.files.delete(ended.output_file_id)
    again = await client.batches.create(
        input_file_id=batch.input_file_id, endpoint=PATH, completion_window="24h"
    )
    assert again.status == "validating"
