"""The simulated gateway asks the routing rule for each request, and tells it what happens."""

from collections.abc import Sequence
from random import Random

import pytest

from penstock.core.admission.admission_spec import AdmissionSpec
from penstock.core.admission.engine_load import Waiting
from penstock.sim.block_hashes import block_hashes
from penstock.sim.clock import Clock
from penstock.sim.engine.engine import Engine
from penstock.sim.gateway import Gateway
from penstock.sim.profile import profile
from penstock.sim.request import Request
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.view import EngineView, QueueMetrics

BLOCK_TOKENS = 64


class Recorder(Picker):
    """Rule that picks the last engine, and records each call."""

    scrape_s = 0.05

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.views: dict[str, EngineView] = {}

    def pick(
        self,
        request: Request,
        waiting: Waiting,
        engines: Sequence[EngineView],
        now: float,
        draw: float,
    ) -> EngineView:
        return engines[-1]

    def predicted_s(self, request: Request) -> float | None:
        return 7.0

    def sent(self, request: Request, now: float) -> None:
        self.events.append(("sent", request.request_id))

    def first_token(self, request: Request, now: float) -> None:
        self.events.append(("first token", request.request_id))

    def ended(self, request: Request, now: float) -> None:
        self.events.append(("ended", request.request_id))

    def engine_added(self, engine: EngineView, now: float) -> None:
        self.events.append(("added", engine.pod))
        self.views[engine.pod] = engine

    def engine_removed(self, pod: str, now: float) -> None:
        self.events.append(("removed", pod))


class Pool:
    """A gateway with two engines and a rule that records."""

    def __init__(self) -> None:
        self.clock, self.rule = Clock(), Recorder()
        spec = AdmissionSpec("none", 10.0, 1024, 60.0)
        self.gateway = Gateway(spec, self.clock, Random(0), picker=self.rule)
        for pod in ("a", "b"):
            engine = Engine(
                profile("llama-3.1-8b-h100"), self.clock, self.gateway, Random(0), BLOCK_TOKENS
            )
            self.gateway.add_engine(pod, engine)


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_the_rule_picks_the_engine_and_hears_of_each_step(pool: Pool) -> None:
    request = Request("r0", 0.0, 1000, 20, prefix=(1,))
    pool.gateway.arrive(request)
    pool.clock.run(10.0)
    pool.gateway.remove_engine("b")

    assert (request.pod, request.predicted_s, request.outcome) == ("b", 7.0, "ended")
    assert pool.rule.events == [
        ("added", "a"),
        ("added", "b"),
        ("sent", "r0"),
        ("first token", "r0"),
        ("ended", "r0"),
        ("removed", "b"),
    ]


def test_the_views_count_what_is_in_flight(pool: Pool) -> None:
    view = pool.rule.views["b"]
    pool.gateway.arrive(Request("r0", 0.0, 1000, 20, prefix=(1,)))
    # Half of the 256 output tokens that are expected of the first request
    assert (view.requests, view.unanswered, view.tokens) == (1, 1, 1128)
    pool.clock.run(10.0)
    assert (view.requests, view.unanswered, view.tokens) == (0, 0, 0)


def test_metrics_are_as_old_as_the_last_scrape(pool: Pool) -> None:
    view = pool.rule.views["b"]
    pool.clock.run(0.01)
    pool.gateway.arrive(Request("r0", 0.0, 1000, 20, prefix=(1,)))
    pool.clock.run(0.04)
    assert view.metrics == QueueMetrics(0, 0, 0.0)
    pool.clock.run(0.05)
    # 16 blocks of 64 tokens, of 6,250 blocks
    assert view.metrics == QueueMetrics(0, 1, pytest.approx(16 / 6250))


def test_blocks_are_resident_once_they_are_computed(pool: Pool) -> None:
    hashes = block_hashes(Request("r1", 0.0, 1000, 20, prefix=(1, 2, 3)), BLOCK_TOKENS)
    view = pool.rule.views["b"]
    pool.gateway.arrive(Request("r0", 0.0, 1000, 20, prefix=(1, 2, 5)))
    assert view.num_resident_blocks(hashes) == 0
    pool.clock.run(10.0)
    assert view.num_resident_blocks(hashes) == 2
    assert pool.rule.views["a"].num_resident_blocks(hashes) == 0
