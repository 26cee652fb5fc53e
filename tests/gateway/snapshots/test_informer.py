"""The informer: lists, watches, and all the ways in which a watch can end."""

import asyncio
import contextlib
from itertools import pairwise

import pytest

from penstock.clients.kubernetes import informer
from penstock.clients.kubernetes.informer import MIN_MISSING_S, Informer
from penstock.clients.kubernetes.resources import PODS
from penstock.errors import Forbidden, NotFound, Transient


def pod(name, version, **more):
    return {"metadata": {"namespace": "n", "name": name, "resourceVersion": str(version)}} | more


class Kube:
    """Answer each list and each watch with the next step of a script, then hang."""

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

    async def list(self, resource, namespace, *, page_size, reduce, **query):
        self.calls.append(("list", query))
        return await self._next()

    async def watch(self, resource, namespace, version, **query):
        self.calls.append(("watch", version))
        for event in await self._next():
            if isinstance(event, Exception):
                raise event
            yield event


async def follow(monkeypatch, *script):
    """Run a script. Returns (versions by name in the cache, changed keys, calls)."""
    monkeypatch.setattr(informer, "FIRST_RETRY_S", 0.001)
    kube, changed = Kube(*script), []
    cache = Informer(kube, PODS, selector="a=b", changed=lambda key: changed.append(key[1]))
    task = asyncio.create_task(cache.run())
    async with asyncio.timeout(5):
        await kube.done.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    items = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in cache}
    return items, changed, kube.calls


async def test_watch_continues_from_the_last_version(monkeypatch):
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


async def test_too_old_version_relists_and_reports_only_differences(monkeypatch):
    items, changed, _ = await follow(
        monkeypatch,
        ([pod("a", 1), pod("b", 2), pod("c", 3)], "5"),
        [NotFound("too old")],
        ([pod("a", 1), pod("b", 9), pod("d", 10)], "11"),
    )
    assert items == {"a": "1", "b": "9", "d": "10"}
    assert sorted(changed[3:]) == ["b", "c", "d"]


async def test_each_list_but_the_first_is_a_restart(monkeypatch):
    monkeypatch.setattr(informer, "FIRST_RETRY_S", 0.001)
    kube, restarts = Kube(([], "5"), [Transient("broke")], Transient("away"), ([], "6")), []
    cache = Informer(kube, PODS, changed=lambda _: None, restarted=restarts.append)
    task = asyncio.create_task(cache.run())
    async with asyncio.timeout(5):
        await kube.done.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert restarts == ["pods", "pods"]


@pytest.mark.parametrize("where", ["list", "watch"])
async def test_unreachable_api_server_leaves_the_cache_unchanged(monkeypatch, where):
    away = [Transient("away")] * 3
    if where == "list":
        script = [*away, ([pod("a", 1)], "5")]
    else:
        script = [([pod("a", 1)], "5"), [Transient("broke")], *away, ([pod("a", 1)], "6")]
    items, changed, _ = await follow(monkeypatch, *script)
    assert items == {"a": "1"}
    assert changed == ["a"]


async def test_kind_that_is_not_installed_has_no_objects(monkeypatch):
    items, changed, _ = await follow(monkeypatch, NotFound("no such kind"), ([pod("a", 1)], "5"))
    assert items == {"a": "1"}
    assert changed == ["a"]


@pytest.mark.parametrize("nothing", [[NotFound("too old")], []], ids=["too old", "ends at once"])
async def test_watches_without_events_are_followed_by_a_pause(monkeypatch, nothing):
    """The API server would otherwise get lists without end."""
    monkeypatch.setattr(informer, "FIRST_RETRY_S", 1000.0)
    ended = [("ADDED", pod("a", 1)), NotFound("too old")]
    kube = Kube(*[([], "5"), ended, ([], "6"), nothing] * 9)
    task = asyncio.create_task(Informer(kube, PODS, changed=lambda _: None).run())
    for _ in range(100):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert [name for name, _ in kube.calls] == ["list", "watch", "list", "watch"]


@pytest.mark.parametrize("error", [NotFound("no such kind"), Forbidden("not allowed")])
async def test_an_optional_kind_may_be_missing(monkeypatch, caplog, error):
    """The informer lists the kind again and again, logs one message, and finds it once it is there."""
    monkeypatch.setattr(informer, "FIRST_RETRY_S", 0.001)
    caplog.set_level("INFO")
    kube, restarts = Kube(error, error, ([pod("a", 1)], "5")), []
    cache = Informer(
        kube, PODS, changed=lambda _: None, restarted=restarts.append, is_optional=True
    )
    confirmed_s = cache.confirmed_s
    task = asyncio.create_task(cache.run())
    await asyncio.wait_for(cache.synced.wait(), 5)
    assert list(cache) == []
    assert cache.confirmed_s > confirmed_s
    await asyncio.wait_for(kube.done.wait(), 5)
    task.cancel()
    assert [item["metadata"]["name"] for item in cache] == ["a"]
    assert restarts == []
    assert [r.levelname for r in caplog.records if r.name == informer.__name__] == ["INFO"]


MISSING, DENIED, BROKEN = NotFound("no such kind"), Forbidden("not allowed"), Transient("gone")


class MissingKube(Kube):
    """Answers like `Kube`. lists: time and objects in the cache at each list. now: the clock."""

    def __init__(self, now, *script):
        super().__init__(*script)
        self.now, self.cache, self.lists = now, (), []

    async def list(self, resource, namespace, *, page_size, reduce, **query):
        self.lists.append((self.now(), [item["metadata"]["name"] for item in self.cache]))
        return await super().list(resource, namespace, page_size=page_size, reduce=reduce, **query)


@pytest.mark.parametrize("between", [(), (DENIED,), (BROKEN,)])
def test_objects_of_an_optional_kind_go_once_it_is_missing_for_long(
    run_virtually, monkeypatch, between
):
    """An API server that has just started gives a few 404s. Other answers say nothing about the kind."""

    async def main():
        now = asyncio.get_running_loop().time
        monkeypatch.setattr(informer, "monotonic", now)
        first = ([pod("a", 1)], "5"), [BROKEN], *[MISSING] * 4, *between
        kube, changed = MissingKube(now, *first, *[MISSING] * 9), []
        cache = Informer(kube, PODS, changed=lambda key: changed.append(key[1]), is_optional=True)
        kube.cache = cache
        task = asyncio.create_task(cache.run())
        await kube.done.wait()
        task.cancel()
        since_s = kube.lists[1 + (4 + 1 if between else 0)][0]
        for (at_s, _), (_, names) in pairwise(kube.lists):
            assert names == ([] if at_s - since_s >= MIN_MISSING_S else ["a"])
        assert changed == ["a", "a"]

    run_virtually(main)


def test_objects_of_an_optional_kind_stay_when_it_is_found_again(run_virtually, monkeypatch):
    async def main():
        monkeypatch.setattr(informer, "monotonic", asyncio.get_running_loop().time)
        found = [pod("a", 1)], "5"
        kube, changed = Kube(found, [BROKEN], *[MISSING] * 3, found), []
        cache = Informer(kube, PODS, changed=lambda key: changed.append(key[1]), is_optional=True)
        task = asyncio.create_task(cache.run())
        await kube.done.wait()
        task.cancel()
        assert changed == ["a"]
        assert not cache.is_absent

    run_virtually(main)
