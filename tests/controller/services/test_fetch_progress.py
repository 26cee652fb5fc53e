"""Progress of fetches in the pods of services, which is read beside the reconciles."""

from dataclasses import dataclass, field, replace

import pytest

from penstock.clients.kubernetes.informer import Key
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.services.fetch_progress import MAX_PODS, FetchProgressReader
from penstock.core.observed.children import ObservedState
from penstock.core.observed.fetches import FetchProgress, PodFetches
from penstock.core.observed.pods import ObservedPod

PROGRESS = FetchProgress(1, 2, 3.0)
RUNNING = PodFetches(running="fetch-model")
CHAT: Key = ("ns", "chat")


def pod(name: str, fetches: PodFetches | None = RUNNING, address: str = "::1") -> ObservedPod:
    made = ObservedPod(name, name, "r", "serve", address, False, False, "Pending", None, "")
    return replace(made, fetches=fetches)


@dataclass
class World:
    """Pods that answer, and what the reader does."""

    asked: list[str] = field(default_factory=list)
    changed: list[Key] = field(default_factory=list)
    answers: dict[str, FetchProgress] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reader = FetchProgressReader(self, self.changed.append, Failures(OperatorMetrics()))

    async def fetch_progress(self, namespace: str, pod: str, address: str) -> FetchProgress | None:
        self.asked.append(f"{namespace}/{pod}@{address}")
        return self.answers.get(pod)

    def progress_of(self, *pods: ObservedPod) -> list[FetchProgress | None]:
        """The progress that a reconcile of the service sees."""
        state = self.reader.with_progress(CHAT, ObservedState(pods=pods))
        return [each.fetches and each.fetches.progress for each in state.pods]


@pytest.fixture
def world() -> World:
    return World(answers={"a": PROGRESS})


async def test_a_reconcile_sees_what_pods_answered_last(world: World) -> None:
    pods = (
        pod("a"),
        pod("mute"),
        pod("b", PodFetches(ended_at="2026-01-01T00:00:00Z")),
        pod("c", None),
    )
    assert world.progress_of(*pods) == [None] * 4
    assert world.asked == []  # a reconcile waits for nobody
    await world.reader.read_all({CHAT})
    assert world.asked == ["ns/a@[::1]:8000", "ns/mute@[::1]:8000"]
    assert world.changed == [CHAT]
    assert world.progress_of(*pods) == [PROGRESS, None, None, None]


async def test_a_service_reconciles_once_for_each_answer_that_differs(world: World) -> None:
    for number in range(3):
        world.progress_of(pod("a"))
        await world.reader.read_all({CHAT})
        assert len(world.changed) == 1, number
    world.answers["a"] = replace(PROGRESS, done_bytes=2)
    await world.reader.read_all({CHAT})
    assert len(world.changed) == 2


async def test_nobody_is_asked_without_a_fetch(world: World) -> None:
    world.progress_of(pod("a"))
    world.progress_of(pod("a", PodFetches()), pod("b", address=""))
    await world.reader.read_all({CHAT})
    assert world.asked == []


async def test_pods_of_a_deleted_service_are_forgotten(world: World) -> None:
    world.progress_of(pod("a"))
    await world.reader.read_all({CHAT})
    await world.reader.read_all(set())
    assert len(world.asked) == 1
    assert world.progress_of(pod("a")) == [None]


async def test_a_service_with_many_pods_asks_a_few(world: World) -> None:
    world.progress_of(*(pod(f"p{number}") for number in range(MAX_PODS + 3)))
    await world.reader.read_all({CHAT})
    assert len(world.asked) == MAX_PODS
