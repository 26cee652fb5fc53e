"""Order of writes of several namespaces."""

from penstock.clients.informer import Key
from penstock.controller.write_queue import WriteQueue


def keys(namespace: str, count: int) -> list[Key]:
    return [(namespace, f"a{number}") for number in range(count)]


def started(queue: WriteQueue) -> list[Key]:
    """Start all writes, each of which is done before the next begins."""
    found = []
    while (key := queue.start()) is not None:
        queue.finish(key)
        found.append(key)
    return found


def test_a_key_waits_once() -> None:
    queue = WriteQueue()
    for is_urgent in (False, True, True, False):
        queue.add(("team", "sql"), is_urgent=is_urgent)
    assert started(queue) == [("team", "sql")]


def test_namespaces_take_turns() -> None:
    queue = WriteQueue()
    many, few = keys("other", 5), keys("team", 2)
    for key in many + few:
        queue.add(key, is_urgent=key[0] == "other")
    assert started(queue) == [many[0], few[0], many[1], few[1], *many[2:]]


def test_the_namespace_with_the_fewest_running_writes_is_next() -> None:
    queue = WriteQueue()
    many, few = keys("other", 5), keys("team", 3)
    for key in many:
        queue.add(key, is_urgent=True)
    running = [queue.start() for _ in range(3)]
    assert running == many[:3]
    for key in few:
        queue.add(key, is_urgent=False)
    assert [queue.start() for _ in range(2)] == few[:2]
    for key in many[:3]:
        queue.finish(key)
    assert queue.start() == many[3]


def test_urgent_keys_overtake_others_of_their_namespace() -> None:
    queue = WriteQueue()
    first, second, third = keys("team", 3)
    for key in (first, second, third):
        queue.add(key, is_urgent=False)
    queue.add(third, is_urgent=True)
    queue.add(third, is_urgent=False)
    assert started(queue) == [third, first, second]
