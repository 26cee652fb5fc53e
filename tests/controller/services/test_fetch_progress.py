"""Progress of fetches in a service's pods, as the reconciler asks for it."""

from dataclasses import replace

from penstock.controller.services.fetch_progress import (
    INTERVAL_S,
    MAX_PODS,
    with_fetch_progress,
)
from penstock.core.observed.children import ObservedState
from penstock.core.observed.fetches import FetchProgress, PodFetches
from penstock.core.observed.pods import ObservedPod

PROGRESS = FetchProgress(1, 2, 3.0)
RUNNING = PodFetches(running="fetch-model")


def pod(name: str, fetches: PodFetches | None = RUNNING, address: str = "::1") -> ObservedPod:
    made = ObservedPod(name, name, "r", "serve", address, False, False, "Pending", None, "")
    return replace(made, fetches=fetches)


async def progress_of(
    *pods: ObservedPod,
) -> tuple[list[FetchProgress | None], list[str], float | None]:
    """Progress of each pod, the addresses that were asked, and the delay until they are asked again."""
    asked: list[str] = []

    async def read(namespace: str, name: str, address: str) -> FetchProgress | None:
        asked.append(f"{namespace}/{name}@{address}")
        return PROGRESS if name != "mute" else None

    state, delay_s = await with_fetch_progress(read, "ns", ObservedState(pods=pods))
    return [each.fetches and each.fetches.progress for each in state.pods], asked, delay_s


async def test_pods_that_fetch_are_asked_at_the_port_of_the_engine() -> None:
    done = PodFetches(ended_at="2026-01-01T00:00:00Z")
    found, asked, delay_s = await progress_of(pod("a"), pod("mute"), pod("b", done), pod("c", None))
    assert found == [PROGRESS, None, None, None]
    assert asked == ["ns/a@[::1]:8000", "ns/mute@[::1]:8000"]
    assert delay_s == INTERVAL_S


async def test_nobody_is_asked_without_a_fetch() -> None:
    assert await progress_of(pod("a", PodFetches()), pod("b", address="")) == (
        [None, None],
        [],
        None,
    )


async def test_a_service_with_many_pods_asks_a_few() -> None:
    found, asked, _ = await progress_of(*(pod(f"p{number}") for number in range(MAX_PODS + 3)))
    assert len(asked) == MAX_PODS
    assert found.count(PROGRESS) == MAX_PODS
