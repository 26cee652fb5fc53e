"""Files by OpenAI's client: what it stores, it gets again; nobody else does."""

import asyncio

import aiohttp
import openai
import pytest
from tests.batch.conftest import TOKEN, Front, Start, create, lines, until, upload

from penstock.batch.api.upload_form import base_name
from penstock.core.batches.shared_token import TENANT_HEADER

HEADERS = {"Authorization": f"Bearer {TOKEN}", TENANT_HEADER: "team"}
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
EMPTY_FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\r\n'
PURPOSE = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nx\r\n'
END = b"--b--\r\n"
NESTED = FILE.replace(b"; filename", b"\r\nContent-Type: multipart/mixed; boundary=c\r\nX: ")


async def test_a_file_is_stored_and_deleted(start_server: Start) -> None:
    client = (await start_server()).client()
    content = lines("one", "two") * 20_000
    file = await client.files.create(file=("in.jsonl", content), purpose="batch")
    assert (file.filename, file.bytes, file.purpose) == ("in.jsonl", len(content), "batch")
    assert file.expires_at == file.created_at + 30 * 24 * 3600
    assert await client.files.retrieve(file.id) == file
    assert (await client.files.content(file.id)).content == content
    assert (await client.files.delete(file.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve(file.id)


async def test_pages_follow_each_other(start_server: Start) -> None:
    client = (await start_server()).client()
    uploaded = [await upload(client, b"x", f"{number}") for number in range(5)]
    newest_first = [each.id async for each in client.files.list(limit=2)]
    assert newest_first == uploaded[::-1]
    first = await client.files.list(limit=2, order="asc", purpose="batch")
    assert ([each.id for each in first.data], first.has_more) == (uploaded[:2], True)
    assert [each async for each in client.files.list(purpose="batch_output")] == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=10001", "limit=x", "limit=-1", "order=up", "after=file-0"]
)
async def test_bad_parameters_of_pages_are_refused(start_server: Start, query: str) -> None:
    front = await start_server()
    async with (
        aiohttp.ClientSession(headers=HEADERS) as session,
        session.get(f"{front.url}/v1/files?{query}") as got,
    ):
        assert got.status == 400
        assert (await got.json())["error"]["param"] == query.partition("=")[0]


async def test_files_and_batches_of_a_tenant_are_its_own(start_server: Start) -> None:
    front = await start_server()
    owner, other = front.client("team"), front.client("other")
    batch = await create(owner, lines("one"))
    file_id = batch.input_file_id
    for call in (
        other.files.retrieve(file_id),
        other.files.content(file_id),
        other.files.delete(file_id),
        other.batches.retrieve(batch.id),
        other.batches.cancel(batch.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await call
    with pytest.raises(openai.BadRequestError):
        await other.batches.create(
            input_file_id=file_id, endpoint="/v1/completions", completion_window="24h"
        )
    assert (await other.files.list()).data == []
    assert (await other.batches.list()).data == []
    assert (await owner.files.list()).data
    assert (await front.client("").files.list()).data == []


async def test_only_gateways_are_answered(start_server: Start) -> None:
    front = await start_server()
    async with aiohttp.ClientSession() as session:
        for given in ("", "Bearer wrong", f"Bearer {TOKEN}x", f"bearer {TOKEN}", TOKEN):
            async with session.get(
                f"{front.url}/v1/files", headers={"Authorization": given} if given else {}
            ) as got:
                assert got.status == 401
                assert TOKEN not in await got.text()


@pytest.mark.parametrize("tenant", ["..", "a/b", "A", "_open", "a" * 254, "a..%2f"])
async def test_a_tenant_has_the_name_of_one(start_server: Start, tenant: str) -> None:
    front = await start_server()
    async with (
        aiohttp.ClientSession(headers=HEADERS | {TENANT_HEADER: tenant}) as session,
        session.get(f"{front.url}/v1/files") as got,
    ):
        assert got.status == 400


PATHS = [
    "/v1/files/..", "/v1/files/..%2f..%2f.lock", "/v1/files/%2e%2e/content", "/v1/files/file-1",
    "/v1/files/file-" + "0" * 32, "/v1/files/" + "x" * 4000, "/v1/files/%00", "/v1/files/\u00e9",
    "/v1/batches/..%2fbatches", "/v1/batches/batch_" + "f" * 32, "/v1/files//content", "/v1/filesx",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
async def test_an_unknown_id_is_not_found(start_server: Start, path: str) -> None:
    front = await start_server()
    async with (
        aiohttp.ClientSession(headers=HEADERS) as session,
        session.get(front.url + path) as got,
    ):
        assert got.status == 404
        assert (await got.json())["error"]["message"]


BAD_FORMS: list[tuple[dict[str, str], bytes, int]] = [
    ({"Content-Type": "application/json"}, b"{}", 415),
    ({"Content-Type": "multipart/mixed; boundary=b"}, PURPOSE + FILE + END, 415),
    ({"Content-Type": "multipart/form-data"}, PURPOSE + FILE + END, 400),
    ({"Content-Type": "multipart/form-data; boundary=" + "b" * 200}, PURPOSE, 400),
    (FORM, b"", 400),
    (FORM, b"no boundary at all", 400),
    (FORM, END, 400),
    (FORM, PURPOSE + END, 400),
    (FORM, FILE + END, 400),
    (FORM, PURPOSE + FILE + FILE + END, 400),
    (FORM, PURPOSE + FILE, 400),
    (FORM, PURPOSE.replace(b"batch", b"fine-tune") + FILE + END, 400),
    (FORM, PURPOSE.replace(b"batch", b"vision") + EMPTY_FILE + END, 400),
    (FORM, PURPOSE * 17 + FILE + END, 400),
    (FORM, PURPOSE.replace(b"batch", b"b" * 2000) + FILE + END, 400),
    (FORM, PURPOSE + b"--b\r\nX: " + b"y" * 100_000 + b"\r\n\r\n" + FILE + END, 400),
    (FORM, PURPOSE + b"--b\r\n" + b"X: y\r\n" * 1000 + b"\r\nx\r\n" + END, 400),
    (FORM, PURPOSE + NESTED + END, 400),
    (FORM, b"\x00" * 300_000, 400),
    (FORM, b"\n" * 2000 + PURPOSE + FILE + END, 400),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "body", "status"), BAD_FORMS, ids=range(len(BAD_FORMS)))
async def test_a_bad_form_is_refused_and_leaves_nothing(
    start_server: Start, headers: dict[str, str], body: bytes, status: int
) -> None:
    front = await start_server()
    async with (
        aiohttp.ClientSession(headers=HEADERS | headers) as session,
        session.post(f"{front.url}/v1/files", data=body) as got,
    ):
        assert got.status == status
        assert (await got.json())["error"]["message"]
    assert stored_files(front) == []


async def test_a_client_that_leaves_stores_nothing(start_server: Start) -> None:
    front = await start_server()
    _, writer = await asyncio.open_connection("127.0.0.1", front.ports.api)
    head = "".join(f"{name}: {value}\r\n" for name, value in (HEADERS | FORM).items())
    writer.write(
        f"POST /v1/files HTTP/1.1\r\nHost: x\r\n{head}Content-Length: 99999999\r\n\r\n".encode()
    )
    writer.write(PURPOSE + FILE[:-2] + b"x" * 1_000_000)
    await writer.drain()

    async def has_part() -> bool:
        return any((front.folder / ".parts").iterdir())

    async def has_none() -> bool:
        return not await has_part()

    await until(has_part)
    writer.close()
    await writer.wait_closed()
    await until(has_none)
    assert stored_files(front) == []


async def test_files_are_bounded(start_server: Start) -> None:
    front = await start_server(max_file_bytes=1000, max_tenant_bytes=2500, max_tenant_files=3)
    client = front.client()
    with pytest.raises(openai.APIStatusError, match="1000 bytes: split it") as refused:
        await upload(client, b"x" * 1001)
    assert refused.value.status_code == 413
    first = await upload(client, b"x" * 1000)
    await upload(client, b"x" * 1000)
    with pytest.raises(openai.APIStatusError, match="2500 bytes"):
        await upload(client, b"x" * 501)
    await upload(client, b"x" * 500)
    with pytest.raises(openai.BadRequestError, match="3 files already"):
        await upload(client, b"")
    await upload(front.client("other"), b"x" * 1000)
    await client.files.delete(first)
    await upload(client, b"x" * 1000)
    assert len(stored_files(front)) == 4


async def test_a_file_may_expire_earlier(start_server: Start) -> None:
    client = (await start_server()).client()
    file = await client.files.create(
        file=("in", b"x"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert file.expires_at == file.created_at + 3600
    for wrong in ({"anchor": "created_at", "seconds": 60}, {"anchor": "now", "seconds": 3600}):
        with pytest.raises(openai.BadRequestError, match="expires_after"):
            await client.files.create(file=("in", b"x"), purpose="batch", expires_after=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\in.jsonl", "in.jsonl"),
        ("..", ".."),
        ("", "upload.jsonl"),
        ("a/", "upload.jsonl"),
        ("a\x00b\nc\u202e", "abc"),
        ("x" * 300, "x" * 255),
    ],
)
def test_names_of_files_are_only_shown(given: str, shown: str) -> None:
    assert base_name(given) == shown


def stored_files(front: Front) -> list[str]:
    """Contents of files that the server has stored."""
    return [each.name for each in front.folder.rglob("*.jsonl")]
