"""Fixture: runs a scheduler without a model. The next token is a function of the position."""

from collections.abc import Callable

import pytest

from penstock_engine.core.events import TokenEvent
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.step import SequenceOutput, Step

Drain = Callable[[Scheduler], list[TokenEvent]]


@pytest.fixture
def drain() -> Drain:
    """Returns a function that runs a scheduler until it has no work, with a check around each step."""

    def run(scheduler: Scheduler) -> list[TokenEvent]:
        events: list[TokenEvent] = []
        for now in range(10_000):
            scheduler.check()
            step = scheduler.schedule(float(now))
            scheduler.check()
            if step is None:
                return events
            events += scheduler.complete(step, echo(step), float(now))
        pytest.fail("still working after 10,000 steps")

    return run


def echo(step: Step) -> dict[str, SequenceOutput]:
    return {s.request_id: SequenceOutput((s.end,)) for s in step.sequences if s.is_sampled}
