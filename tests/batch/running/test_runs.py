"""Batches from their file to their results, at a gateway that answers, refuses, fails or is gone."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest
from aiohttp import web
from tests.batch.conftest import (
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

from penstock.batch.running import execution
from penstock.batch.running.job import BatchJob
from penstock.batch.running.line_client import LineClient
from penstock.batch.store.journal import Journal
from penstock.core.batches.input_line import InputLine
from penstock.core.batches.records import Batch
from penstock.core.batches.results import MAX_SERVER_ERRORS, Answer


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.batches.concurrency.LineWindow.note_refusal", _note_refusal)
    monkeypatch.setattr("penstock.batch.store.journal.MIN_INTERVAL_S", 0.05)


def _note_refusal(window: Any, now_s: float, sent_s: float, retry_after_s: float | None) -> None:
    """A refusal with a short pause."""
    window.size = max(1.0, window.size / 2)
    window.resume_s = now_s + 0.01


async def test_a_batch_completes(start_server: Start, fake_gateway: FakeGateway) -> None:
    client = (await start_server()).client()
    names = [f"line {number}" for number in range(300)]
    batch = await client.batches.create(
        input_file_id=await upload(client, lines(*names)),
        endpoint="/v1/completions",
        completion_window="24h",
        metadata={"run": "7"},
    )
    assert (batch.status, batch.metadata) == ("validating", {"run": "7"})
    batch = await until_status(client, batch.id, "completed")
    assert batch.request_counts.model_dump() == {"total": 300, "completed": 300, "failed": 0}
    assert (batch.model, batch.error_file_id) == ("chat", None)
    found = await results(client, batch.output_file_id)
    assert {name: each["response"]["body"]["echo"] for name, each in found.items()} == {
        name: name for name in names
    }
    assert found["line 1"]["response"]["status_code"] == 200
    assert found["line 1"]["response"]["request_id"] == "req-1"
    assert sorted(fake_gateway.prompts) == sorted(names)
    assert {each.tenant for each in fake_gateway.received} == {"team"}
    file = await client.files.retrieve(batch.output_file_id)
    assert (file.purpose, file.filename) == ("batch_output", f"{batch.id}_output.jsonl")


async def test_a_bad_file_fails_its_batch(start_server: Start) -> None:
    client = (await start_server()).client()
    batch = await create(client, lines("one") + b"\nwrong\n" + lines("one"))
    batch = await until_status(client, batch.id, "failed")
    assert [(each.code, each.line) for each in batch.errors.data] == [
        ("invalid_json_line", 3),
        ("duplicate_custom_id", 4),
    ]
    assert (batch.output_file_id, batch.error_file_id) == (None, None)


async def test_errors_of_a_line_are_its_result(
    start_server: Start, fake_gateway: FakeGateway
) -> None:
    async def behave(line: Received) -> web.Response:
        if line.prompt == "bad":
            return web.json_response({"error": {"message": "no"}}, status=400)
        return web.json_response({}, status=200)

    fake_gateway.behavior = behave
    client = (await start_server()).client()
    batch = await create(client, lines("good", "bad"))
    batch = await until_status(client, batch.id, "completed")
    assert batch.request_counts.model_dump() == {"total": 2, "completed": 1, "failed": 1}
    assert [*await results(client, batch.output_file_id)] == ["good"]
    failed = await results(client, batch.error_file_id)
    assert failed["bad"]["response"]["status_code"] == 400
    assert failed["bad"]["error"] is None


@pytest.mark.parametrize("status", [401, 408, 429, 500, 502, 503])
async def test_refused_lines_are_sent_again(
    start_server: Start, fake_gateway: FakeGateway, status: int
) -> None:
    async def behave(line: Received) -> web.Response:
        return web.json_response({}, status=status if line.number < 4 else 200)

    fake_gateway.behavior = behave
    client = (await start_server()).client()
    batch = await create(client, lines("one", "two", "three"))
    batch = await until_status(client, batch.id, "completed")
    assert len(await results(client, batch.output_file_id)) == 3
    assert len(fake_gateway.received) == 12


async def test_a_line_that_always_breaks_the_engine_ends(
    start_server: Start, fake_gateway: FakeGateway
) -> None:
    async def behave(line: Received) -> web.Response:
        return web.json_response({}, status=502 if line.prompt == "poison" else 200)

    fake_gateway.behavior = behave
    client = (await start_server()).client()
    batch = await create(client, lines("one", "poison"))
    batch = await until_status(client, batch.id, "completed")
    assert (await results(client, batch.error_file_id))["poison"]["response"]["status_code"] == 502
    assert fake_gateway.prompts.count("poison") == MAX_SERVER_ERRORS


async def test_lines_wait_for_a_gateway_that_is_gone(
    start_server: Start, fake_gateway: FakeGateway
) -> None:
    async def behave(line: Received) -> web.Response:
        if line.number == 1:
            raise ConnectionResetError
        return web.json_response({})

    fake_gateway.behavior = behave
    client = (await start_server()).client()
    batch = await create(client, lines("one", "two"))
    batch = await until_status(client, batch.id, "completed")
    assert len(await results(client, batch.output_file_id)) == 2


async def test_a_line_that_this_program_cannot_send_ends(
    start_server: Start, fake_gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts, send = [], LineClient.send

    async def broken(
        client: LineClient, batch: Batch, line: InputLine, take_memory: Callable[[int], bool]
    ) -> Answer | None:
        if line.custom_id != "bad":
            return await send(client, batch, line, take_memory)
        attempts.append(line.custom_id)
        raise RuntimeError

    monkeypatch.setattr(LineClient, "send", broken)
    client = (await start_server()).client()
    batch = await create(client, lines("good", "bad"))
    batch = await until_status(client, batch.id, "completed")
    assert {*await results(client, batch.output_file_id)} == {"good"}
    (bad,) = (await results(client, batch.error_file_id)).values()
    assert bad["response"]["body"]["error"]["code"] == "batch_server_failed"
    assert len(attempts) == MAX_SERVER_ERRORS


@pytest.mark.parametrize("broken", ["result_line", "Journal.flush"])
async def test_a_batch_goes_on_after_an_error_of_this_program(
    broken: str, start_server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"result_line": execution, "Journal.flush": Journal}[broken]
    name, errors = broken.rpartition(".")[2], [RuntimeError(), RuntimeError()]
    real = getattr(place, name)

    def fails_twice(*arguments: Any) -> Any:
        if errors:
            raise errors.pop()
        return real(*arguments)

    monkeypatch.setattr(place, name, fails_twice)
    monkeypatch.setattr("penstock.batch.running.job.MIN_PAUSE_S", 0.01)
    client = (await start_server()).client()
    batch = await until_status(client, (await create(client, lines("a", "b"))).id, "completed")
    assert {*await results(client, batch.output_file_id)} == {"a", "b"}
    assert not errors


async def test_a_batch_that_always_fails_can_be_cancelled(
    start_server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause after an error is longer than the test."""
    failed = asyncio.Event()

    async def fail(_: BatchJob) -> None:
        failed.set()
        raise RuntimeError

    monkeypatch.setattr("penstock.batch.running.job.MIN_PAUSE_S", 600.0)
    monkeypatch.setattr(BatchJob, "_execute", fail)
    client = (await start_server()).client()
    batch = await create(client, lines("a", "b"))
    await failed.wait()
    await client.batches.cancel(batch.id)
    batch = await until_status(client, batch.id, "cancelled")
    found = await results(client, batch.error_file_id)
    assert {each["error"]["code"] for each in found.values()} == {"batch_cancelled"}
    assert {*found} == {"a", "b"}


async def test_a_cancelled_batch_keeps_what_is_done(
    start_server: Start, fake_gateway: FakeGateway
) -> None:
    async def behave(line: Received) -> web.Response:
        if line.prompt != "quick":
            await asyncio.sleep(600)
        return web.json_response({})

    fake_gateway.behavior = behave
    client = (await start_server()).client()
    batch = await create(client, lines("quick", *map(str, range(50))))
    await until_completed(client, batch.id, 1)
    cancelled = await client.batches.cancel(batch.id)
    assert cancelled.status in ("cancelling", "cancelled")
    batch = await until_status(client, batch.id, "cancelled")
    assert [*await results(client, batch.output_file_id)] == ["quick"]
    left = await results(client, batch.error_file_id)
    assert left.keys() == {str(number) for number in range(50)}
    assert {each["error"]["code"] for each in left.values()} == {"batch_cancelled"}

    async def is_idle() -> bool:
        return not fake_gateway.num_running

    await until(is_idle)
    assert len(fake_gateway.received) < 10


async def test_a_batch_expires_with_what_is_done(
    start_server: Start, fake_gateway: FakeGateway
) -> None:
    async def behave(line: Received) -> web.Response:
        return web.json_response({}, status=200 if line.prompt == "quick" else 503)

    fake_gateway.behavior = behave
    offset_s = 0.0
    front = await start_server(now=lambda: time.time() + offset_s)
    client = front.client()
    batch = await create(client, lines("quick", "one", "two"))
    await until_completed(client, batch.id, 1)
    offset_s = 24 * 3600.0
    batch = await until_status(client, batch.id, "expired")
    assert [*await results(client, batch.output_file_id)] == ["quick"]
    left = await results(client, batch.error_file_id)
    assert {name: each["error"]["code"] for name, each in left.items()} == {
        "one": "batch_expired",
        "two": "batch_expired",
    }
    assert batch.request_counts.model_dump() == {"total": 3, "completed": 1, "failed": 0}


async def test_tenants_take_turns(start_server: Start, fake_gateway: FakeGateway) -> None:
    started = asyncio.Event()

    async def behave(line: Received) -> web.Response:
        await started.wait()
        await asyncio.sleep(0.01)
        return web.json_response({})

    fake_gateway.behavior = behave
    front = await start_server(max_lines=2)
    large, small = front.client("large"), front.client("small")
    first = [await create(large, lines(*(f"l{n}-{m}" for n in range(20)))) for m in range(3)]
    second = await create(small, lines(*(f"s{number}" for number in range(10))))
    await until_status(small, second.id, "in_progress")
    await asyncio.sleep(0.2)  # so that lines of both wait
    started.set()
    await until_status(small, second.id, "completed")
    for each in first:
        await until_status(large, each.id, "completed")
    tenants = [each.tenant for each in fake_gateway.received]
    last_of_small = max(at for at, tenant in enumerate(tenants) if tenant == "small")
    assert last_of_small < 35  # of 70: every second line is its own, though the other has 3 batches


async def test_old_files_and_batches_are_deleted(
    start_server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.batch.running.runner.RETENTION_INTERVAL_S", 0.01)
    offset_s = 0.0
    front = await start_server(now=lambda: time.time() + offset_s)
    client = front.client()
    batch = await create(client, lines("one"))
    await until_status(client, batch.id, "completed")
    assert len((await client.files.list()).data) == 2
    offset_s = 30 * 24 * 3600.0 + 60

    async def is_empty() -> bool:
        return not ((await client.files.list()).data or (await client.batches.list()).data)

    await until(is_empty)
    assert [each for each in front.folder.rglob("*") if each.suffix in (".json", ".jsonl")] == []


async def until_completed(client: openai.AsyncOpenAI, batch_id: str, number: int) -> None:
    """Wait until so many lines of a batch are completed."""

    async def has_results() -> bool:
        return (await client.batches.retrieve(batch_id)).request_counts.completed == number

    await until(has_results)
