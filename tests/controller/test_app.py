"""The leader forgets services that were deleted while no watch was running."""

import asyncio

from kubernetes.aio import client

from penstock.controller.app import Leader, Settings
from penstock.controller.health import Health
from penstock.controller.recorder import Recorder
from penstock.errors import NotFound


class Kube:
    """An API server without objects."""

    async def get(self, resource, namespace, name):
        raise NotFound(name)


async def test_a_service_that_went_while_no_watch_looked_holds_its_name_no_longer():
    namespace = "n"
    settings = Settings("me", "penstock", namespace, "127.0.0.1", 0)
    leader = Leader(
        Kube(), client.Configuration(), settings, Health(), Recorder(), asyncio.Event()
    )  # fmt: skip
    ghost, waiting, elsewhere = (namespace, "ghost"), (namespace, "waiting"), ("other", "x")
    leader._services = {key: {"metadata": {}} for key in (ghost, waiting, elsewhere)}
    asked = []
    leader._queue.add = asked.append
    await leader._reconcile(ghost)
    assert leader._services.keys() == {waiting, elsewhere}
    assert asked == [waiting]  # it may have the name now
    await leader._scraper.close()
