"""The admission queues of all services: one for each side that gets requests (virtual time)."""

import asyncio
import contextlib
from dataclasses import replace

import pytest
from tests.support.engine_models import model_of

from penstock.core.admission.admission_spec import AdmissionSpec
from penstock.core.admission.engines import Engines
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.core.spec.objectives import Objectives
from penstock.gateway.admission.queues import AdmissionQueues
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.snapshot import Service, Snapshot

KEY = "default/chat"
A, B, C = (Endpoint(f"default/{name}", f"10.0.0.1:{port}", "r1") for name, port in
           (("a", 1), ("b", 2), ("c", 3)))  # fmt: skip
NEW = replace(B, revision="r2")
R1, R2, R3 = Side("r1"), Side("r2"), Side("r3")


def service_of(weights, *endpoints, objectives=Objectives(1.5, 0.1), name="chat"):  # noqa: B008
    weights = {Side(revision): weight for revision, weight in weights.items()}
    return Service("default", name, name, 0, weights, endpoints, objectives)


async def reserve(queue, arrived_s, adapter=""):
    attributes = RequestAttributes(user_key=None, conversation_key=None)
    return await queue.reserve(
        arrived_s, 100.0, 300.0, 10.0, contextlib.nullcontext(), attributes, adapter
    )


@pytest.fixture
def queues(run_virtually):
    """`queues(main)` runs `main(queues)`."""

    def run(main):
        async def on_loop():
            settings = GatewaySettings(max_waiting=7, wait_for_endpoint_s=5.0)
            time = asyncio.get_running_loop().time
            await main(
                AdmissionQueues(
                    settings,
                    Engines(),
                    lambda endpoints, now: set(),
                    lambda pod, adapter: False,
                    time,
                )
            )

        run_virtually(on_loop)

    return run


def test_each_side_with_weight_has_a_queue(queues):
    async def main(queues):
        service = service_of({"r1": 90, "r3": 0, "r2": 10}, A, NEW, C)
        other = service_of({"r1": 100}, name="other", objectives=None)
        third = service_of({"r1": 100}, B, name="third")
        queues.update(Snapshot((other, service, third)))
        first, second = queues.get(KEY, R1), queues.get(KEY, R2)
        assert list(first._endpoints) == [A.pod, C.pod]
        assert list(second._endpoints) == [NEW.pod]
        assert queues.get(KEY, R3) is None
        assert queues.get("default/other", R1) is None
        assert list(queues.get("default/third", R1)._endpoints) == [B.pod]
        assert first._admission.spec == AdmissionSpec("deadline", 1.5, 7, 5.0)
        # Queues are kept while their sides have weight, with or without engines.
        queues.update(
            Snapshot((service_of({"r1": 90, "r2": 10}, A, objectives=Objectives(2.0, 0.1)),))
        )
        assert (queues.get(KEY, R1), queues.get(KEY, R2)) == (first, second)
        assert list(second._endpoints) == []
        assert first._admission.spec.ttft_s == 2.0
        queues.update(Snapshot((service_of({"r1": 90, "r2": 0}, A),)))
        assert (queues.get(KEY, R1), queues.get(KEY, R2)) == (first, None)
        queues.update(Snapshot())
        assert queues.get(KEY, R1) is None

    queues(main)


@pytest.mark.parametrize(
    "after",
    [
        Snapshot(),
        Snapshot((service_of({"r1": 0}, A),)),
        Snapshot((service_of({"r1": 100}, A, objectives=None),)),
        Snapshot((service_of({"r1": 100}),)),
    ],
)
def test_removed_queue_releases_all_requests(queues, after):
    async def main(queues):
        queues.update(Snapshot((service_of({"r1": 100}, A),)))
        queue = queues.get(KEY, R1)
        load = queue._loads[A.pod]
        # 1,000 tokens/s, measured over ten responses.
        load.kind.model, load.prefill_tokens = model_of(1000.0), 4e3
        load.head_since_s = asyncio.get_running_loop().time()
        load.refresh()
        task = asyncio.create_task(reserve(queue, 1000.0))
        await asyncio.sleep(0.01)
        queues.update(after)
        assert await task is None

    queues(main)


def test_copies_of_a_service_concern_its_own_queues_alone(run_virtually):
    asked_for = []

    def find_holders(pods, adapter):
        asked_for.append(adapter)
        return set(pods)

    async def main():
        now = asyncio.get_running_loop().time
        queues = AdmissionQueues(GatewaySettings(), Engines(), lambda *_: set(), find_holders, now)
        other = service_of({"r1": 100}, B, name="other")
        queues.update(Snapshot((service_of({"r1": 100}, A), other)))
        tasks = []
        for key, pod in ((KEY, A.pod), (other.key, B.pod)):
            queue = queues.get(key, R1)
            queue._loads[pod].prefill_tokens = 1e6
            queue._loads[pod].head_since_s = asyncio.get_running_loop().time()
            queue._loads[pod].refresh()
            tasks.append(asyncio.create_task(reserve(queue, now(), key)))
        await asyncio.sleep(0)
        asked_for.clear()
        queues.note_copies(KEY)
        assert asked_for == [KEY]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtually(main)
