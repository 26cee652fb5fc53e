"""What requests hold of the limits on connections and on the memory of their bodies."""

import pytest

from penstock.gateway.apis.errors import RequestError
from penstock.gateway.limits.request_allocation import RequestAllocation, RequestLimits

MEMORY = "the requests in this gateway hold too much memory: try again later, with less"


class Requests:
    """Requests that arrive, by name. given_up: those that were given up, in order."""

    def __init__(self, max_connections=99, max_body_bytes=100):
        self.limits = RequestLimits(max_connections, max_body_bytes)
        self.given_up = []
        self._blocks = {}

    def start(self, name, client="10.0.0.1"):
        request = RequestAllocation(self.limits, client)
        block = request.arriving(lambda: self.given_up.append(name))
        block.__enter__()
        self._blocks[name] = block
        return request

    def complete(self, name):
        """End the reading of a body. The request keeps what it holds."""
        self._blocks[name].__exit__(None, None, None)

    @property
    def held(self):
        return self.limits.connections.held, self.limits.body_bytes.held


def test_request_gives_all_back():
    requests = Requests()
    request = requests.start("a")
    request.grow(20)
    request.grow(10)
    requests.complete("a")
    assert requests.held == (1, 30)
    request.assign("default/chat")
    assert requests.held == (1, 30)
    request.release_body()
    request.release_body()  # once more does nothing
    assert requests.held == (1, 0)
    request.release()
    request.release()
    assert requests.held == (0, 0)


def test_request_without_a_service_gives_all_back():
    requests = Requests()
    request = requests.start("a")
    request.grow(30)
    request.release()
    assert requests.held == (0, 0)


def test_service_holds_its_share_of_the_memory():
    requests = Requests(max_body_bytes=160)
    for name, num_bytes in (("a", 40), ("b", 30)):
        request = requests.start(name)
        request.grow(num_bytes)
        requests.complete(name)
        request.assign("party/chat")
    over = requests.start("c")
    over.grow(1)
    with pytest.raises(RequestError) as refused:
        over.assign("party/chat")
    assert (refused.value.status, refused.value.retry_after_s) == (503, 5)
    assert (refused.value.reason, refused.value.message) == (
        "memory",
        "the waiting requests for this model or its namespace hold too much memory: try again later",
    )
    assert requests.limits.body_bytes.held == 70


def test_service_holds_its_share_of_the_connections():
    requests = Requests(max_connections=16)
    for name in "abcdefg":
        requests.start(name).assign("party/chat")
    over = requests.start("h")
    with pytest.raises(RequestError) as refused:
        over.assign("party/chat")
    assert (refused.value.status, refused.value.retry_after_s) == (503, 5)
    assert (refused.value.reason, refused.value.message) == (
        "connections",
        "too many requests for this model or its namespace are open: try again later",
    )
    assert requests.limits.connections.held == 7


def test_arriving_requests_hold_half_of_the_memory_then_the_oldest_is_given_up():
    requests = Requests()
    requests.start("a").grow(20)
    requests.start("b").grow(30)
    assert requests.given_up == []
    requests.start("c").grow(1)
    assert requests.given_up == ["a"]
    requests.start("d").grow(19)
    assert requests.given_up == ["a"]
    requests.start("e").grow(1)
    assert requests.given_up == ["a", "b"]


def test_one_byte_displaces_one_request_after_others_have_lowered_the_share():
    requests = Requests(max_body_bytes=160)
    for number in range(8):
        requests.start(number).grow(10)
    for namespace, num_bytes in (("a", 35), ("b", 19)):
        assert requests.limits.body_bytes.take(f"{namespace}/chat", num_bytes)
    requests.start("late", client="10.0.0.2").grow(1)
    assert requests.given_up == [0]
    assert requests.held == (8, 71 + 54)


def test_arriving_requests_come_down_to_a_lowered_share():
    requests = Requests(max_connections=16)
    for number in range(8):
        requests.start(number)
    assert requests.limits.connections.take("a/chat", 3)  # the others may hold 6 now
    for name, given_up in (("x", [0, 1]), ("y", [0, 1, 2, 3]), ("z", [0, 1, 2, 3, 4])):
        requests.start(name, client="10.0.0.2")
        assert requests.given_up == given_up
    assert requests.held == (6 + 3, 0)


def test_number_of_arriving_requests_is_bounded():
    requests = Requests(max_connections=4)
    for name in "abc":
        requests.start(name)
    assert requests.given_up == ["a"]
    requests.complete("b")
    requests.start("d")
    assert requests.given_up == ["a", "c"]  # b is complete


def test_complete_requests_are_not_given_up():
    requests = Requests(max_body_bytes=160)
    whole = requests.start("whole")
    whole.grow(70)
    requests.complete("whole")
    whole.assign("party/chat")
    requests.start("next").grow(45)
    assert requests.given_up == []
    assert requests.limits.body_bytes.held == 115
    whole.release_body()
    assert requests.limits.body_bytes.held == 45


def test_the_client_that_holds_most_gives_up_its_oldest():
    requests = Requests(max_connections=12)
    requests.start("stranger", client="10.0.0.2")
    for name in "abcdef":
        requests.start(name)
    assert requests.given_up == ["a"]
    requests.start("late", client="10.0.0.3")
    assert requests.given_up == ["a", "b"]


def test_addresses_of_one_ipv6_network_are_one_client():
    requests = Requests(max_connections=12)
    requests.start("stranger", client="2001:db8:0:2::1")
    for number in range(6):
        requests.start(number, client=f"2001:db8:0:1::{number}")
    assert requests.given_up == [0]


def test_the_client_that_holds_most_memory_gives_up_its_oldest_that_holds_some():
    requests = Requests()
    requests.start("stranger", client="10.0.0.2").grow(15)
    requests.start("empty")
    requests.start("a").grow(10)
    requests.start("b").grow(20)
    requests.start("late", client="10.0.0.3").grow(10)
    assert requests.given_up == ["a"]


def test_requests_that_hold_too_little_are_not_given_up():
    requests = Requests()
    for number in range(10):
        requests.start(number).grow(1)
    for name in ("a", "b"):
        requests.start(name).grow(20)
    requests.start("late", client="10.0.0.2").grow(5)
    assert requests.given_up == ["a"]


def test_largest_requests_are_given_up_if_none_of_the_client_holds_enough():
    requests = Requests()
    for number in range(1, 8):
        requests.start(number).grow(number)
    requests.start("other", client="10.0.0.2").grow(20)
    requests.start("late", client="10.0.0.3").grow(12)
    assert requests.given_up == [7, 6]
    assert requests.held == (7, 15 + 20 + 12)


def test_nobody_is_given_up_if_that_is_not_enough():
    """Complete requests that wait for the first snapshot of the cluster hold the rest."""
    requests = Requests()
    requests.start("whole").grow(40)
    requests.complete("whole")
    requests.start("a", client="10.0.0.2").grow(9)
    with pytest.raises(RequestError) as refused:
        requests.start("late", client="10.0.0.3").grow(11)
    assert refused.value.message == MEMORY
    assert requests.given_up == []


def test_client_whose_requests_have_arrived_holds_nothing_of_the_arriving():
    requests = Requests()
    for name in ("a", "b"):
        requests.start(name).grow(20)
        requests.complete(name)
    requests.start("c", client="10.0.0.2").grow(9)
    requests.start("d").grow(1)
    requests.start("late", client="10.0.0.3").grow(5)
    assert requests.given_up == ["c"]


def test_request_that_was_given_up_grows_no_more():
    requests = Requests(max_connections=4)
    slow = requests.start("slow")
    slow.grow(10)
    requests.start("a")
    requests.start("b")
    assert (requests.given_up, requests.held) == (["slow"], (2, 0))
    with pytest.raises(TimeoutError):
        slow.grow(1)
    assert requests.held == (2, 0)


@pytest.mark.parametrize("is_first_part", [True, False])
def test_body_that_cannot_fit_is_refused_and_nobody_is_given_up(is_first_part):
    requests = Requests()
    requests.start("other", client="10.0.0.2").grow(1)
    large = requests.start("large")
    if not is_first_part:
        large.grow(49)
    with pytest.raises(RequestError) as refused:
        large.grow(51 if is_first_part else 2)
    assert (refused.value.status, refused.value.retry_after_s) == (503, 5)
    assert (refused.value.reason, refused.value.message) == ("memory", MEMORY)
    assert requests.given_up == []


def test_the_slowest_client_is_refused_what_others_would_have_to_give_up():
    requests = Requests()
    requests.start("other", client="10.0.0.2").grow(20)
    slow = requests.start("slow")
    slow.grow(30)
    with pytest.raises(RequestError) as refused:
        slow.grow(1)
    assert refused.value.message == MEMORY
    assert requests.given_up == []


def test_without_a_connection_a_request_is_refused():
    requests = Requests(max_connections=1)
    requests.start("a")
    requests.complete("a")
    with pytest.raises(RequestError) as refused:
        requests.start("b")
    assert (refused.value.status, refused.value.reason) == (503, "connections")
    assert refused.value.message == "too many requests are arriving: try again later"
