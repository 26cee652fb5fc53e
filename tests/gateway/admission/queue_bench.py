"""An admission queue with engines for tests, in virtual time."""

import asyncio
import contextlib

import pytest
from tests.support.engine_models import model_of

from penstock.core.admission.admission_spec import AdmissionSpec
from penstock.core.admission.engine_load import EngineLoad
from penstock.core.admission.engines import Engines
from penstock.core.admission.requester import ANYBODY
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.gateway.admission.queue import AdmissionQueue

A, B, C = (Endpoint(f"default/{name}", f"10.0.0.1:{port}", "r1") for name, port in
           (("a", 1), ("b", 2), ("c", 3)))  # fmt: skip
# 1,000 tokens/s, measured over ten responses.
MODEL = model_of(1000.0)
ATTRIBUTES = RequestAttributes(user_key=None, conversation_key=None)


class Bench:
    """An admission queue whose endpoints all have the same throughput. ejected: pods."""

    def __init__(self, spec, *engines, model=MODEL):
        self.loop = asyncio.get_running_loop()
        self.ejected = set()
        self.ejected_calls = []
        self.queue = AdmissionQueue(
            spec,
            Engines(),
            self._ejected,
            lambda pods, adapter: {pod for pod in pods if adapter in self.copies.get(pod, ())},
            self.loop.time,
        )
        self.copies = {}
        self.queue.update(spec, engines)
        for load in self.queue._loads.values():
            load.kind.model = model
            load.refresh()
        self.started_s = self.loop.time()
        self.num_waits = 0

    def _ejected(self, endpoints, now):
        self.ejected_calls.append((list(endpoints), now))
        return self.ejected

    def load(self, engine) -> EngineLoad:
        return self.queue._loads[engine.pod]

    def give_prompts(self, engine, tokens):
        """Give an engine prompts that it begins to compute now."""
        load = self.load(engine)
        load.prefill_tokens, load.head_since_s = tokens, self.loop.time()
        load.refresh()

    @contextlib.contextmanager
    def waiting(self):
        self.num_waits += 1
        yield

    async def reserve(
        self, tokens=100.0, kv_tokens=300.0, wait_s=10.0, arrived_s=None, adapter="", by=ANYBODY
    ):
        arrived_s = self.loop.time() if arrived_s is None else arrived_s
        return await self.queue.reserve(
            arrived_s, tokens, kv_tokens, wait_s, self.waiting(), ATTRIBUTES, adapter, by
        )

    async def start_reserving(self, *more, **values):
        task = asyncio.create_task(self.reserve(*more, **values))
        await asyncio.sleep(0.001)
        return task

    @property
    def elapsed_s(self):
        return pytest.approx(self.loop.time() - self.started_s, abs=0.01)


def spec(ttft_s=1.0, max_queued=100):
    return AdmissionSpec("deadline", ttft_s, max_queued, 60.0)
