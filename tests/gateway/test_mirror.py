"""The store that follows the API server, through everything that a watch can do."""

import asyncio
import contextlib

import pytest

from penstock.clients import watch
from penstock.clients.resources import PODS
from penstock.clients.watch import Mirror
from penstock.errors import NotFound, Transient


def pod(name, version, **more):
    return {"metadata": {"namespace": "n", "name": name, "resourceVersion": str(version)}} | more


class Kube:
    """Answers each list and each watch by the next line of a script, then hangs."""

    def __init__(self, *script):
        self.script = list(script)
        self.calls = []
        self.done = asyncio.Event()

    async def _next(self):
        if not self.script:
            self.done.set()
            await asyncio.Event().wait()
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    async def list(self, resource, namespace, **query):
        self.calls.append(("list", query))
        return await self._next()

    async def watch(self, resource, namespace, version, **query):
        self.calls.append(("watch", version))
        for event in await self._next():
            if isinstance(event, Exception):
                raise event
            yield event


async def follow(monkeypatch, *script):
    """(names and versions in the store, keys that changed, calls made) after the script."""
    monkeypatch.setattr(watch, "FIRST_RETRY_S", 0.001)
    kube, changed = Kube(*script), []
    mirror = Mirror(kube, PODS, selector="a=b", changed=lambda key: changed.append(key[1]))
    task = asyncio.create_task(mirror.run())
    async with asyncio.timeout(5):
        await kube.done.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    items = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in mirror}
    return items, changed, kube.calls


async def test_events_are_followed_from_where_the_last_one_was(monkeypatch):
    items, changed, calls = await follow(
        monkeypatch,
        ([pod("a", 1)], "5"),
        [("ADDED", pod("b", 6)), ("MODIFIED", pod("a", 7)), ("BOOKMARK", pod("", 9))],
        [("DELETED", pod("a", 10))],
    )
    assert items == {"b": "6"}
    assert changed == ["a", "b", "a", "a"]
    assert calls == [
        ("list", {"labelSelector": "a=b"}), ("watch", "5"), ("watch", "9"), ("watch", "10"),
    ]  # fmt: skip


async def test_a_version_that_is_too_old_means_a_new_list_and_only_differences(monkeypatch):
    items, changed, _ = await follow(
        monkeypatch,
        ([pod("a", 1), pod("b", 2), pod("c", 3)], "5"),
        [NotFound("too old")],
        ([pod("a", 1), pod("b", 9), pod("d", 10)], "11"),
    )
    assert items == {"a": "1", "b": "9", "d": "10"}
    assert sorted(changed[3:]) == ["b", "c", "d"]


@pytest.mark.parametrize("where", ["list", "watch"])
async def test_an_api_server_that_is_away_leaves_the_store_as_it_is(monkeypatch, where):
    away = [Transient("away")] * 3
    if where == "list":
        script = [*away, ([pod("a", 1)], "5")]
    else:
        script = [([pod("a", 1)], "5"), [Transient("broke")], *away, ([pod("a", 1)], "6")]
    items, changed, _ = await follow(monkeypatch, *script)
    assert items == {"a": "1"}
    assert changed == ["a"]


async def test_a_kind_that_is_not_installed_has_no_objects_until_it_is(monkeypatch):
    items, changed, _ = await follow(monkeypatch, NotFound("no such kind"), ([pod("a", 1)], "5"))
    assert items == {"a": "1"}
    assert changed == ["a"]


@pytest.mark.parametrize("nothing", [[NotFound("too old")], []], ids=["too old", "ends at once"])
async def test_watches_that_give_nothing_are_paused_between(monkeypatch, nothing):
    """Or an API server that answers each of them so gets as many lists as it can take."""
    monkeypatch.setattr(watch, "FIRST_RETRY_S", 1000.0)
    ended = [("ADDED", pod("a", 1)), NotFound("too old")]
    kube = Kube(*[([], "5"), ended, ([], "6"), nothing] * 9)
    task = asyncio.create_task(Mirror(kube, PODS, changed=lambda _: None).run())
    for _ in range(100):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert [name for name, _ in kube.calls] == ["list", "watch", "list", "watch"]
