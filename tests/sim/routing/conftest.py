"""Fixtures: engines as rules see them, and requests."""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from penstock.core.admission.engine_load import EngineLoad, Waiting
from penstock.sim.clock import Clock
from penstock.sim.engine.engine import Engine
from penstock.sim.profile import profile
from penstock.sim.request import Request
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.view import EngineView, QueueMetrics

BLOCK_TOKENS = 256
MakeViews = Callable[..., list[EngineView]]
Pick = Callable[..., str]


class Unheard:
    """Listener of engines that get no requests by a gateway."""

    def started(self, request: Request) -> None:
        """Do nothing."""

    def ended(self, request: Request) -> None:
        """Do nothing."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_views(clock: Clock) -> MakeViews:
    """Engines a, b, c with these requests and tokens in flight, and metrics (waiting, running, KV usage)."""

    def make(
        requests: Sequence[int] = (0, 0, 0),
        tokens: Sequence[int] = (0, 0, 0),
        metrics: Sequence[tuple[int, int, float]] = ((0, 0, 0.0),) * 3,
    ) -> list[EngineView]:
        views = []
        for pod, num, total, read in zip("abc", requests, tokens, metrics, strict=True):
            spec = profile("llama-3.1-8b-h100")
            engine = Engine(spec, clock, Unheard(), Random(0), BLOCK_TOKENS)
            view = EngineView(pod, EngineLoad(pod=pod, kv_capacity_tokens=spec.kv_tokens), engine)
            view.requests, view.tokens, view.metrics = num, total, QueueMetrics(*read)
            views.append(view)
        return views

    return make


@pytest.fixture
def pick() -> Pick:
    """Send a request by a rule, as the gateway does. Returns the pod."""

    def send(
        rule: Picker,
        views: Sequence[EngineView],
        request: Request,
        draw: float = 0.0,
        now: float = 0.0,
    ) -> str:
        waiting = Waiting(
            request.request_id,
            now,
            now,
            0.0,
            float(request.prompt_tokens),
            request.attributes(0),
        )
        request.pod = rule.pick(request, waiting, views, now, draw).pod
        rule.sent(request, now)
        return request.pod

    return send
