"""The leader forgets services that were deleted while no watch was running."""

import asyncio

import pytest
from kubernetes.aio import client

from penstock.controller.http.recorder import Recorder
from penstock.controller.http.server import OperatorEndpoints
from penstock.controller.leader import Leader
from penstock.controller.process.settings import Settings
from penstock.controller.services.queue import is_settled
from penstock.errors import NotFound


class Kube:
    """API server without objects. asked: keys that were asked for."""

    def __init__(self):
        self.asked = asyncio.Queue()

    async def get(self, resource, namespace, name):
        self.asked.put_nowait((namespace, name))
        raise NotFound(name)


def body(key):
    namespace, name = key
    metadata = {"namespace": namespace, "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"model": {"name": namespace}}}


async def test_a_service_deleted_while_no_watch_ran_frees_its_served_name():
    namespace = "n"
    settings = Settings("me", "penstock", namespace, "127.0.0.1", 0)
    kube = Kube()
    leader = Leader(
        kube, client.Configuration(), settings, OperatorEndpoints(), Recorder(), asyncio.Event()
    )
    ghost, waiting, elsewhere = keys = (namespace, "ghost"), (namespace, "waiting"), ("other", "x")
    for key in keys:
        leader._names.update("InferenceService", key, body(key))
    leader._services = {key: {"metadata": {}} for key in keys}
    await leader._reconciler.reconcile(ghost)
    assert leader._services.keys() == {waiting, elsewhere}
    assert leader._names.index.get(("InferenceService", *ghost)) is None
    asked = [await kube.asked.get() for _ in range(2)]
    assert asked == [ghost, waiting]  # it may take the name now
    await leader._scraper.close()


METADATA = {"uid": "u", "generation": 2}
SETTLED = {"metadata": METADATA, "status": {"observedGeneration": 2}}


@pytest.mark.parametrize(
    ("body", "known", "expected"),
    [
        (SETTLED, None, True),  # as a new leader lists it
        ({"metadata": METADATA}, None, False),  # created
        ({"metadata": METADATA, "status": {"observedGeneration": 1}}, None, False),
        ({"metadata": METADATA, "status": {"observedGeneration": 2, "replicas": 1}}, SETTLED, True),
        ({"metadata": METADATA | {"generation": 3}}, SETTLED, False),
        ({"metadata": METADATA | {"annotations": {"a": "b"}}}, SETTLED, False),
        ({"metadata": METADATA | {"deletionTimestamp": "now"}}, SETTLED, False),
    ],
)
def test_a_service_is_settled_if_no_more_than_its_status_changed(body, known, expected):
    assert is_settled(body, known) == expected
