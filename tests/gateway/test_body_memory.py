"""Memory limits of request bodies."""

import pytest

from penstock.gateway.body_memory import BodyMemory, BodyReservation
from penstock.gateway.openai import RequestError


def test_total_limit_can_be_reached_exactly():
    memory = BodyMemory(100)
    memory.add(60)
    assert memory.has_room(40)
    assert not memory.has_room(41)
    with pytest.raises(RequestError) as refused:
        memory.add(41)
    assert (refused.value.status, refused.value.retry_after_s) == (503, 5)
    assert refused.value.message == (
        "the requests in this gateway hold too much memory: try again later, with less"
    )
    assert memory.held_bytes == 60  # what was refused is not held
    memory.add(40)
    assert memory.held_bytes == 100
    memory.free(70)
    assert memory.held_bytes == 30


def test_service_limit_is_half_of_the_total():
    memory = BodyMemory(100)
    memory.add_to_service("a", 20)
    memory.add_to_service("a", 30)
    memory.add_to_service("b", 50)
    for service in ("a", "b"):
        with pytest.raises(RequestError) as refused:
            memory.add_to_service(service, 1)
        assert (refused.value.status, refused.value.retry_after_s) == (503, 5)
        assert refused.value.message == (
            "the waiting requests for this model hold too much memory: try again later"
        )
    memory.free_from_service("a", 20)
    memory.add_to_service("a", 20)
    memory.free_from_service("a", 20)
    memory.free_from_service("a", 30)
    memory.add_to_service("a", 50)


def test_reservation_releases_its_bytes():
    memory = BodyMemory(100)
    with BodyReservation(memory) as body:
        body.grow(20)
        body.grow(10)
        body.assign("a")
        assert memory.held_bytes == 30
        with pytest.raises(RequestError):
            memory.add_to_service("a", 21)
        memory.add_to_service("a", 20)
        memory.free_from_service("a", 20)
        with pytest.raises(RequestError):
            body.grow(71)
        body.release()
        assert memory.held_bytes == 0
        body.release()  # once more does nothing
        assert memory.held_bytes == 0
        memory.add_to_service("a", 50)
    assert memory.held_bytes == 0


def test_reservation_without_a_service():
    memory = BodyMemory(100)
    with BodyReservation(memory) as body:
        body.grow(30)
    assert memory.held_bytes == 0


def test_refused_bytes_are_not_counted_for_the_service():
    memory = BodyMemory(100)
    memory.add_to_service("a", 50)
    with BodyReservation(memory) as body:
        body.grow(1)
        with pytest.raises(RequestError):
            body.assign("a")
    memory.free_from_service("a", 50)
    memory.add_to_service("a", 50)
