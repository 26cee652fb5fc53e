"""Memory limits of request bodies."""

import pytest

from penstock.gateway.body_memory import BodyMemory, BodyReservation
from penstock.gateway.openai import RequestError


def test_total_limit_can_be_reached_exactly():
    memory = BodyMemory(100, max_arriving=9)
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
    memory = BodyMemory(100, max_arriving=9)
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
    memory = BodyMemory(100, max_arriving=9)
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
    memory = BodyMemory(100, max_arriving=9)
    with BodyReservation(memory) as body:
        body.grow(30)
    assert memory.held_bytes == 0


def test_refused_bytes_are_not_counted_for_the_service():
    memory = BodyMemory(100, max_arriving=9)
    memory.add_to_service("a", 50)
    with BodyReservation(memory) as body:
        body.grow(1)
        with pytest.raises(RequestError):
            body.assign("a")
    memory.free_from_service("a", 50)
    memory.add_to_service("a", 50)


class Bodies:
    """Bodies that arrive, by name. given_up: those that were given up, in order."""

    def __init__(self, memory):
        self._memory = memory
        self._stack = {}
        self.given_up = []

    def start(self, name):
        body = BodyReservation(self._memory)
        block = body.arriving(lambda: self.given_up.append(name))
        block.__enter__()
        self._stack[name] = body, block
        return body

    def end(self, name):
        """End the reading of a body, complete or not. It keeps its memory."""
        self._stack[name][1].__exit__(None, None, None)


def test_bodies_that_arrive_hold_half_of_the_memory_then_the_oldest_is_given_up():
    bodies = Bodies(BodyMemory(100, max_arriving=9))
    bodies.start("a").grow(20)
    bodies.start("b").grow(30)
    assert bodies.given_up == []
    bodies.start("c").grow(1)
    assert bodies.given_up == ["a"]
    bodies.start("d").grow(19)
    assert bodies.given_up == ["a"]
    bodies.start("e").grow(1)
    assert bodies.given_up == ["a", "b"]


def test_number_of_bodies_that_arrive_is_bounded():
    bodies = Bodies(BodyMemory(100, max_arriving=2))
    for name in "abc":
        bodies.start(name)
    assert bodies.given_up == ["a"]
    bodies.end("a")
    bodies.end("b")
    bodies.start("d")
    assert bodies.given_up == ["a"]


def test_complete_bodies_are_not_given_up():
    memory = BodyMemory(100, max_arriving=9)
    bodies = Bodies(memory)
    whole = bodies.start("whole")
    whole.grow(50)
    bodies.end("whole")
    bodies.start("next").grow(50)
    assert bodies.given_up == []
    assert memory.held_bytes == 100
    whole.release()
    assert memory.held_bytes == 50


def test_one_body_above_the_share_is_given_up():
    bodies = Bodies(BodyMemory(100, max_arriving=9))
    bodies.start("a").grow(51)
    assert bodies.given_up == ["a"]
