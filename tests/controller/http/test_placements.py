"""The record of a placement, as commands read it from the leading operator."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from tests.controller.http.leading_pod import lead, outer_address
from tests.core.adapters.pods import replica

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.leader import placement
from penstock.controller.http.placements import Placements
from penstock.controller.http.recorder import Recorder
from penstock.controller.http.server import OperatorEndpoints
from penstock.core.adapters.demand import AdapterCounts, AdapterDemand
from penstock.core.adapters.placement_record import AdapterRecord, PlacementRecord
from penstock.core.adapters.replica import Copy
from penstock.errors import KubeError

pytestmark = pytest.mark.cluster

RECORD = PlacementRecord(
    "default/chat",
    1000.5,
    (replica("chat-a", 4, {"sql@3f2a1b9c": Copy("Resident", 1, 8, 4096)}),),
    tuple(
        AdapterRecord(
            f"a{number}", f"a{number}@3f2a1b9c", 1, True, "on demand", AdapterCounts(misses=number),
            AdapterDemand(last_request_s=3.0), {"chat-a": "no folder"}, 4.5,
        )
        for number in range(2000)
    ),
    loads=(("sql@3f2a1b9c", "chat-a"),),
)  # fmt: skip


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[str], Awaitable[int]]]:
    """Function that serves the record at an address. Returns the port."""
    async with AsyncExitStack() as servers:

        async def start(host: str) -> int:
            placements = Placements()
            placements.source = lambda key: RECORD if key == ("default", "chat") else None
            server = OperatorEndpoints().serve(host, 0, Recorder(), placements)
            return await servers.enter_async_context(server)

        yield start


@pytest.mark.parametrize("is_relayed", [False, True], ids=["direct", "relayed"])
async def test_a_command_reads_the_record_of_the_leader(
    kube: Kube, namespace: str, serve: Callable[[str], Awaitable[int]], is_relayed: bool
) -> None:
    address = outer_address() if is_relayed else "127.0.0.1"
    if address is None:
        pytest.skip("this machine has no address but loopback ones")
    await lead(kube, namespace, address, await serve(address))
    assert await placement(kube, namespace, "lease", "default/chat") == RECORD
    with pytest.raises(KubeError, match="places no adapters of default/other"):
        await placement(kube, namespace, "lease", "default/other")


async def test_an_answer_of_another_version_is_said_to_be_one(
    kube: Kube,
    namespace: str,
    serve: Callable[[str], Awaitable[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.controller.http.placements.serialize", lambda _: {"newer": 1})
    await lead(kube, namespace, "127.0.0.1", await serve("127.0.0.1"))
    with pytest.raises(KubeError, match="another version"):
        await placement(kube, namespace, "lease", "default/chat")
