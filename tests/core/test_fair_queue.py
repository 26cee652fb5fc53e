"""Order of items of several owners."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.fair_queue import FairQueue

Key = tuple[str, str]


def keys(namespace: str, count: int) -> list[Key]:
    return [(namespace, f"a{number}") for number in range(count)]


def start(queue: FairQueue[Key]) -> Key | None:
    """Start the next item, if one waits."""
    owner = queue.next_owner()
    return None if owner is None else queue.start(owner)


def started(queue: FairQueue[Key]) -> list[Key]:
    """Start all items, each of which is done before the next begins."""
    found = []
    while (key := start(queue)) is not None:
        queue.finish(key[0])
        found.append(key)
    return found


def test_an_item_waits_once() -> None:
    queue = FairQueue[Key]()
    for is_urgent in (False, True, True, False):
        queue.add("team", ("team", "sql"), is_urgent=is_urgent)
    assert started(queue) == [("team", "sql")]


def test_owners_take_turns() -> None:
    queue = FairQueue[Key]()
    many, few = keys("other", 5), keys("team", 2)
    for key in many + few:
        queue.add(key[0], key, is_urgent=key[0] == "other")
    assert started(queue) == [many[0], few[0], many[1], few[1], *many[2:]]


def test_the_owner_with_the_fewest_running_items_is_next() -> None:
    queue = FairQueue[Key]()
    many, few = keys("other", 5), keys("team", 3)
    for key in many:
        queue.add(key[0], key, is_urgent=True)
    running = [start(queue) for _ in range(3)]
    assert running == many[:3]
    for key in few:
        queue.add(key[0], key, is_urgent=False)
    assert [start(queue) for _ in range(2)] == few[:2]
    for key in many[:3]:
        queue.finish(key[0])
    assert start(queue) == many[3]


def test_urgent_items_overtake_others_of_their_owner() -> None:
    queue = FairQueue[Key]()
    first, second, third = keys("team", 3)
    for key in (first, second, third):
        queue.add(key[0], key, is_urgent=False)
    queue.add(third[0], third, is_urgent=True)
    queue.add(third[0], third, is_urgent=False)
    assert started(queue) == [third, first, second]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["add", "start", "finish"]))))
def test_no_waiting_owner_has_fewer_running_items_than_the_next(steps: list[Key]) -> None:
    queue = FairQueue[int]()
    num_waiting, num_running = dict.fromkeys("abcd", 0), dict.fromkeys("abcd", 0)
    for number, (owner, step) in enumerate(steps):
        if step == "add":
            queue.add(owner, number)
            num_waiting[owner] += 1
        elif step == "finish" and num_running[owner]:
            queue.finish(owner)
            num_running[owner] -= 1
        elif step == "start" and (turn := queue.next_owner()) is not None:
            queue.start(turn)
            num_waiting[turn] -= 1
            num_running[turn] += 1
        waiting = [each for each, count in num_waiting.items() if count]
        turn = queue.next_owner()
        assert (turn is None) == (not waiting)
        assert turn is None or num_running[turn] == min(num_running[each] for each in waiting)
