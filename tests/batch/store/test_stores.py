"""Promises of every store: whole objects, ranges, and one leader."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.batch.store.conftest import MakeStore

from penstock.batch.store.object_store import NotStored


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def broken() -> AsyncIterator[bytes]:
    yield b"begun"
    raise RuntimeError("the client left")


async def test_objects_are_read_and_replaced(make_store: MakeStore) -> None:
    store = make_store()
    async with store.leading():
        await store.write("tenants/a/files/one.json", b"first")
        await store.write("tenants/a/files/one.json", b"second")
        await store.write("tenants/b/files/two.json", b"")
        assert await store.read("tenants/a/files/one.json") == b"second"
        assert await store.read("tenants/b/files/two.json") == b""
        assert await store.list_keys("tenants/a/") == ["tenants/a/files/one.json"]
        assert len(await store.list_keys("tenants/")) == 2
        await store.delete("tenants/a/files/one.json")
        await store.delete("tenants/a/files/one.json")
        with pytest.raises(NotStored):
            await store.read("tenants/a/files/one.json")
        assert await store.list_keys("tenants/nobody/") == []


async def test_ranges_end_with_the_object(make_store: MakeStore) -> None:
    store = make_store()
    async with store.leading():
        await store.write("a/b", b"0123456789")
        assert await store.read("a/b", 2, 3) == b"234"
        assert await store.read("a/b", 8, 10) == b"89"
        assert await store.read("a/b", 10, 10) == b""
        assert await store.read("a/b", 7) == b"789"
        with pytest.raises(NotStored):
            await store.read("a/c", 0, 1)


async def test_an_upload_is_stored_whole_or_not_at_all(make_store: MakeStore) -> None:
    store = make_store()
    part = bytes(range(256)) * 40_000
    async with store.leading():
        assert await store.upload("a/large", chunks(part, part, b"end")) == 2 * len(part) + 3
        assert await store.read("a/large", len(part) - 1, 2) == part[-1:] + part[:1]
        with pytest.raises(RuntimeError):
            await store.upload("a/broken", broken())
        assert await store.list_keys("a/") == ["a/large"]


async def test_the_next_process_leads_when_the_first_one_ends(make_store: MakeStore) -> None:
    order: list[str] = []

    async def second() -> None:
        async with make_store().leading():
            order.append("second")

    async with make_store().leading():
        waiting = asyncio.create_task(second())
        await asyncio.sleep(1.5)
        order.append("first")
    await waiting
    assert order == ["first", "second"]
