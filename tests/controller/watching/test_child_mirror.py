"""`ChildMirror` reports each added, changed or deleted child, even one deleted while a watch was down."""

import asyncio

from penstock.clients.kubernetes import informer
from penstock.clients.kubernetes.resources import PODS
from penstock.controller.watching.child_mirror import ChildMirror
from penstock.core.spec.service import MANAGED_LABEL, SERVICE_LABEL
from penstock.errors import NotFound


def child(name, version, service="chat"):
    labels = {MANAGED_LABEL: "penstock"} | ({SERVICE_LABEL: service} if service else {})
    metadata = {"namespace": "n", "name": name, "resourceVersion": version, "labels": labels}
    return {"metadata": metadata}


class Kube:
    """Serves lists and watch events of pods from a script; there are no Deployments."""

    def __init__(self, lists, watches):
        self.lists, self.watches = lists, watches
        self.done, self.selectors = asyncio.Event(), set()

    async def list(self, resource, namespace, *, page_size, reduce, **query):
        self.selectors.add(query["labelSelector"])
        return (self.lists.pop(0) if resource == PODS else []), "1"

    async def watch(self, resource, namespace, version, **query):
        if resource != PODS or not self.watches:
            if resource == PODS:
                self.done.set()
            await asyncio.Event().wait()
        for event in self.watches.pop(0):
            if isinstance(event, Exception):
                raise event
            yield event


async def follow(kube):
    """Run a mirror until the script ends. Returns the reported services and the last snapshot."""
    changed = []
    mirror = ChildMirror(kube, changed.append)
    assert mirror.snapshot() == ([], [])
    task = asyncio.create_task(mirror.run())
    async with asyncio.timeout(5):
        await kube.done.wait()
    task.cancel()
    await asyncio.wait({task})
    return changed, mirror.snapshot()


async def test_a_child_deleted_while_no_watch_ran_is_reported():
    too_old = [NotFound("too old")]
    kube = Kube(
        [[child("a", "1"), child("b", "1", "other")], [child("b", "1", "other")]], [too_old]
    )
    changed, (deployments, pods) = await follow(kube)
    assert sorted(changed) == [("n", "chat"), ("n", "chat"), ("n", "other")]
    assert (deployments, [pod["metadata"]["name"] for pod in pods]) == ([], ["b"])
    assert kube.selectors == {"app.kubernetes.io/managed-by=penstock"}


async def test_a_deleted_child_is_reported_for_its_service_and_unlabeled_ones_never():
    events = [
        ("MODIFIED", child("a", "2", "")),
        ("MODIFIED", child("a", "3")),
        ("DELETED", child("a", "4")),
        ("ADDED", child("c", "5", "")),
        ("DELETED", child("c", "6", "")),
    ]
    changed, (_, pods) = await follow(Kube([[child("a", "1")]], [events]))
    assert changed == [("n", "chat")] * 3
    assert pods == []


async def test_malformed_answers_do_not_end_the_mirror(monkeypatch):
    monkeypatch.setattr(informer, "FIRST_RETRY_S", 0.001)
    lists = [[{"kind": "Pod"}], [child("a", "1")], [child("a", "1")]]
    _, (_, pods) = await follow(Kube(lists, [[("ADDED", {"kind": "Status"})]]))
    assert [pod["metadata"]["name"] for pod in pods] == ["a"]
