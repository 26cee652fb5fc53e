"""What waits until it is decided who has a service's model name, and for how long."""

import itertools
from typing import Any

import pytest

from penstock.controller.names.name_waits import MAX_WAIT_S, NameWaits
from penstock.core.observed.name_claims import NameClaim, Precedence


def test_the_wait_of_a_service_is_bounded() -> None:
    waits, key = NameWaits(), ("n", "a")
    assert waits.may_wait(key, 100.0)
    assert waits.may_wait(key, 100.0 + MAX_WAIT_S - 1)
    assert not waits.may_wait(key, 100.0 + MAX_WAIT_S)
    waits.end(key)
    assert waits.may_wait(key, 100.0 + MAX_WAIT_S)


@pytest.mark.cluster
async def test_a_service_that_waits_for_its_name_gets_its_engines(stand: Any) -> None:
    """Objects of another namespace hold the name one after the other, and none has said so."""
    name, index, numbers = stand.key[1], stand.names.index, itertools.count(1)
    num_passes_with_engine = 0

    def put_next_holder() -> None:
        number, yielding = next(numbers), Precedence(yields_short=True)
        index.remove(("LoraAdapter", "other", f"x{number - 1}"))
        index.put(NameClaim("LoraAdapter", "other", f"x{number}", name, 0, yielding))

    async def has_waited() -> bool:
        nonlocal num_passes_with_engine
        put_next_holder()
        num_passes_with_engine += any(pod["status"].get("podIP") for pod in await stand.pods())
        return num_passes_with_engine == 3

    put_next_holder()
    await stand.create()
    await stand.until(has_waited)
    status = await stand.status()
    assert status["desiredReplicas"] == 1
    assert "stableRevision" not in status
    index.put(NameClaim("LoraAdapter", "other", "y", name, 0))
    await stand.until_phase("Stable")
    assert await stand.condition("ModelNameConflict") == ("True", "HeldByOtherNamespace")
