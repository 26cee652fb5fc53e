"""Budget of a client network for checks of invalid tokens."""

from penstock.gateway.tenants.check_budget import BURST, MAX_NETWORKS, PER_SECOND, CheckBudget


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_network_may_fail_in_a_burst_and_then_at_a_rate() -> None:
    clock = Clock()
    budget = CheckBudget(clock)
    assert [budget.take("a") for _ in range(int(BURST) + 1)] == [True] * int(BURST) + [False]
    assert budget.take("b")
    clock.now_s += 3.5 / PER_SECOND
    assert [budget.take("a") for _ in range(4)] == [True] * 3 + [False]
    clock.now_s += 1e6
    assert [budget.take("a") for _ in range(int(BURST) + 1)] == [True] * int(BURST) + [False]


def test_a_check_that_does_not_fail_costs_nothing() -> None:
    budget = CheckBudget(Clock())
    for _ in range(int(BURST) * 3):
        assert budget.take("a")
        budget.give_back("a")


def test_the_network_of_the_oldest_check_is_forgotten_first() -> None:
    budget = CheckBudget(Clock())
    while budget.take("kept"):
        pass
    for number in range(MAX_NETWORKS * 2):
        assert budget.take(str(number))
        assert not budget.take("kept")
