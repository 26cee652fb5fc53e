"""Lists, loads and unloads of adapters over HTTP, and the failures that they return."""

import asyncio
import json

import pytest
from tests.support.cluster.adapter_engine import adapter_engine

from penstock.clients.pods import engine_adapters
from penstock.clients.pods.adapter_list import MAX_LIST_BYTES
from penstock.clients.pods.engine_adapters import MAX_LISTS, EngineAdapters, EngineFailure
from penstock.core.adapters.replica import Copy

NAME = "sql@3f2a1b9c"
DEAD_VLLM = "EngineCore encountered an issue. See stack trace (above) for the root cause."
VLLM_MESSAGE = (
    "Call to add_lora method failed: Worker failed with error 'rank 64 is\nhigh.', "
    "please check the stack trace above for the root cause"
)


@pytest.fixture
async def client():
    made = EngineAdapters()
    yield made
    await made.close()


@pytest.fixture
async def engine():
    async with adapter_engine() as made:
        yield made


async def test_copies_of_penstock_engines(client, engine):
    engine.add(NAME, "device", requests=3, rank=16, bytes=1 << 33)
    engine.add("b@00000000", "disk", rank=None, bytes=0)
    engine.add("c@00000000", "loading")
    listed = await client.list("team", engine.address, "Penstock")
    assert listed.copies == {
        NAME: Copy("Resident", 3, 16, 1 << 33),
        "b@00000000": Copy("Evicted"),
        "c@00000000": Copy("Loading", 0, 8, 4096),
    }


async def test_copies_of_vllm_are_the_models_with_a_parent(client, engine):
    engine.add(NAME)
    listed = await client.list("team", engine.address, "VLLM")
    assert listed.copies == {NAME: Copy("Resident")}


@pytest.mark.parametrize("runtime", ["Penstock", "VLLM"])
async def test_load_and_unload(client, engine, runtime):
    assert await client.load("team", engine.address, runtime, NAME, "/adapters/pvc/a/sql") is None
    assert engine.entries[NAME]["path"] == "/adapters/pvc/a/sql"
    assert NAME in (await client.list("team", engine.address, runtime)).copies
    assert await client.unload(engine.address, NAME) is None
    assert engine.entries == {}


async def test_what_another_client_did_already_is_no_failure(client, engine):
    engine.add(NAME)
    assert await client.load("team", engine.address, "Penstock", NAME, "/p") is None
    assert await client.unload(engine.address, NAME) is None
    assert await client.unload(engine.address, NAME) is None


async def test_a_process_that_may_not_write_only_lists(engine):
    """A former leader: another replica may lead by now, and wants other copies."""
    engine.add(NAME)
    former = EngineAdapters(lambda: False)
    refused = EngineFailure("Busy", "NotLeading", "another replica may lead by now")
    assert await former.unload(engine.address, NAME) == refused
    assert await former.load("team", engine.address, "Penstock", "b@00000000", "/p") == refused
    assert (await former.list("team", engine.address, "Penstock")).copies.keys() == {NAME}
    await former.close()


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason", "message"),
    [
        (400, {"error": {"message": "rank", "code": "rank_too_large"}}, "Refused", "RankTooLarge", "rank"),
        (404, {"error": {"message": "no folder", "code": 404}}, "Refused", "Refused", "no folder"),
        (400, {"message": "old form", "code": "BadTensors"}, "Refused", "BadTensors", "old form"),
        (400, {"error": "text"}, "Refused", "Refused", "status 400 of the engine"),
        (400, ["list"], "Refused", "Refused", "status 400 of the engine"),
        (503, {"error": {"message": "all in use"}}, "Busy", "Busy", "all in use"),
        (500, "", "Busy", "Busy", "status 500 of the engine"),
        (500, {"error": {"message": "rank 64", "code": 500}}, "Refused", "Refused", "rank 64"),
        (500, {"error": {"message": VLLM_MESSAGE, "code": 500}}, "Refused", "Refused", "rank 64 is\nhigh."),
        (500, {"error": {"message": DEAD_VLLM, "code": 500}}, "Busy", "Busy", DEAD_VLLM),
        (400, {"error": {"message": "x" * 9000}}, "Refused", "Refused", "x" * 500),
        (400, {"error": {"message": "x" * 90_000}}, "Refused", "Refused", "status 400 of the engine"),
    ],
)  # fmt: skip
async def test_a_refused_load(client, engine, status, body, kind, reason, message):
    engine.refused[NAME] = status, body
    failure = await client.load("team", engine.address, "Penstock", NAME, "/p")
    assert failure == EngineFailure(kind, reason, message)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"data": [1]}',
        b'{"data": [{"id": "a"}]}',
        b'{"data": [{"id": "a", "tier": "moon"}]}',
        b'{"data": [{"id": "a", "tier": "disk", "requests": "many"}]}',
        b'{"data": [{"id": "\\ud800", "tier": "disk"}]}',
        b"[" * 100_000,
        json.dumps({"data": [], "more": "x" * (1 << 20)}).encode(),
    ],
)
async def test_an_unreadable_list(client, engine, body):
    engine.list_body = body
    failure = await client.list("team", engine.address, "Penstock")
    assert isinstance(failure, EngineFailure)
    assert failure.kind == "Unanswered"


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        ("Penstock", "its rank 64 is above spec.engine.lora.maxRank"),
        ("VLLM", "its rank 64 is above --max-lora-rank"),
    ],
)
async def test_only_flags_of_penstock_engines_are_told_in_fields(client, engine, runtime, message):
    engine.refused[NAME] = 400, {"error": {"message": "its rank 64 is above --max-lora-rank"}}
    failure = await client.load("team", engine.address, runtime, NAME, "/p")
    assert failure == EngineFailure("Refused", "Refused", message)


@pytest.mark.parametrize("number", ["1e999", "-Infinity", "NaN", "-1", "1.5", "9" * 30])
@pytest.mark.parametrize("field", ["requests", "rank", "bytes"])
async def test_a_number_that_no_engine_has_makes_a_list_unreadable(client, engine, field, number):
    engine.list_body = b'{"data": [{"id": "a", "tier": "disk", "%s": %s}]}' % (
        field.encode(),
        number.encode(),
    )
    failure = await client.list("team", engine.address, "Penstock")
    assert failure.kind == "Unanswered"
    assert failure.message.startswith(
        f"/v1/adapters of the engine gives an unreadable list: data.0.{field}: Input should be "
    )


VLLM_CARD = {
    "object": "model", "created": 1_800_000_000, "owned_by": "vllm", "max_model_len": None, "parent": "m",
    "permission": [{f"permission_{number:02}": False for number in range(12)}],
}  # fmt: skip


async def test_as_many_adapters_as_a_service_may_have_are_listed(client, engine):
    names = [f"adapter-{number}@3f2a1b9c" for number in range(1024)]
    cards = [VLLM_CARD | {"id": name, "root": f"/adapters/pvc/a/{name}"} for name in names]
    base = VLLM_CARD | {"id": "m", "root": "m", "parent": None}
    engine.list_body = json.dumps({"object": "list", "data": [base, *cards]}).encode()
    assert list((await client.list("team", engine.address, "VLLM")).copies) == names


@pytest.mark.parametrize(
    ("runtime", "entries", "reason"),
    [
        (
            "Penstock",
            [{"id": str(number), "tier": "disk"} for number in range(1281)],
            "data: List should have at most 1280 items after validation, not 1281",
        ),
        ("VLLM", [0] * 50_000, "it has more than 40960 values"),
        ("VLLM", [[[[[[[[[]]]]]]]]] * 5000, "it has more than 40960 values"),
        ("Penstock", [{"": {"": {"": {}}}}] * 10_000, "it has more than 40960 values"),
        ("VLLM", [{"id": "m" * 301, "parent": "m"}], "it has a name of more than 300 characters"),
        (
            "Penstock",
            [{"id": "m" * 301, "tier": "disk"}],
            "it has a name of more than 300 characters",
        ),
    ],
)
async def test_a_list_that_is_too_large_is_unreadable(client, engine, runtime, entries, reason):
    engine.list_body = json.dumps({"data": entries}).encode()
    failure = await client.list("team", engine.address, runtime)
    path = {"Penstock": "/v1/adapters", "VLLM": "/v1/models"}[runtime]
    message = f"{path} of the engine gives an unreadable list: {reason}"
    assert failure == EngineFailure("Unanswered", "Unanswered", message)


async def test_an_engine_that_is_gone_is_unreachable(client):
    async with adapter_engine() as engine:
        address = engine.address
    for answer in (
        await client.list("team", address, "Penstock"),
        await client.load("team", address, "VLLM", NAME, "/p"),
        await client.unload(address, NAME),
    ):
        assert answer.kind == "Unreachable"


async def test_an_engine_that_does_not_answer_costs_bounded_time(client, engine, monkeypatch):
    monkeypatch.setattr(engine_adapters, "LIST_TIMEOUT_S", 0.2)
    engine.list_s = 5.0
    async with asyncio.timeout(2):
        assert (await client.list("team", engine.address, "Penstock")).kind == "Unanswered"


@pytest.mark.parametrize(
    ("status", "body"), [(200, b'{"data": []}'), (404, b""), (200, b"[" * (MAX_LIST_BYTES + 1))]
)
async def test_any_answer_waits_for_the_turn_of_its_namespace_alone(client, engine, status, body):
    engine.list_status, engine.list_body = status, body
    async with client.share.turn("team"):
        waiting = asyncio.create_task(client.list("team", engine.address, "VLLM"))
        of_other = await client.list("other", engine.address, "VLLM")
        assert not waiting.done()
    answer = await waiting
    if isinstance(of_other, EngineFailure):
        assert answer == of_other
    else:
        assert answer.copies == of_other.copies


async def test_answers_of_a_namespace_that_wait_for_their_turn_are_bounded(client, engine):
    """Each takes up to 640 KiB of memory."""
    async with client.share.turn("team"):
        lists = [
            asyncio.create_task(client.list("team", engine.address, "VLLM"))
            for _ in range(MAX_LISTS)
        ]
        for _ in range(MAX_LISTS // 2):
            await engine.lists.acquire()
        await client.list("other", engine.address, "VLLM")
        await engine.lists.acquire()
        assert engine.lists.locked()  # nothing else was asked for
    await asyncio.gather(*lists)


async def test_the_same_list_again_is_not_read_again(client, engine):
    engine.add(NAME)
    first = await client.list("team", engine.address, "VLLM")
    second = await client.list("team", engine.address, "VLLM", first)
    assert second.copies is first.copies
    assert second.asked_s > first.asked_s
    engine.entries.clear()
    assert (await client.list("team", engine.address, "VLLM", second)).copies == {}


async def test_a_list_is_as_old_as_its_request(engine):
    """The age counts from the request, because a turn may come much later."""
    now_s = 10.0
    client = EngineAdapters(now=lambda: now_s)
    async with client.share.turn("team"):
        waiting = asyncio.create_task(client.list("team", engine.address, "VLLM"))
        await engine.lists.acquire()
        now_s = 20.0
    assert (await waiting).asked_s == 10.0
    await client.close()
