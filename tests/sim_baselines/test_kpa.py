"""Knative KPA: stable and panic windows."""

from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import Missing
from penstock.sim.baselines.kpa import Kpa


def steady(gateway, observe_pods, engine, requests):
    return lambda now, n: observe_pods(
        now, [engine()] * n, gateway=gateway(in_flight=requests(now))
    )


def test_stable(gateway, observe_pods, engine, simulate):
    """45 open requests, 20 a replica: 3. One replica to start with, so no panic."""
    course = simulate(
        Kpa(target=20.0), steady(gateway, observe_pods, engine, lambda t: 30), 120, start=1
    )
    assert course[0] == 2  # 30 / 20 = 1.5; 2 over 1 ready is the panic threshold, too
    assert course[-1] == 2


def test_panic_begins_at_twice_the_ready_replicas_and_never_shrinks(
    gateway, observe_pods, engine, simulate
):
    look = steady(gateway, observe_pods, engine, lambda t: 160 if 60 <= t < 80 else 20)
    course = simulate(Kpa(target=20.0), look, 240, start=1)
    at = course[30:]  # from 60 s on
    assert at[0] == 4  # mean of 6 s: (20 + 20 + 160) / 3 = 66.7; 66.7 / 20 = 3.3
    assert at[2] == 8  # all three samples
    assert min(at[2:31]) == 8  # for 60 s: with 4 ready it is no longer over the threshold
    assert at[31] < 8
    assert at[-1] == 1


def test_panic_starts_at_twice_the_ready_replicas(gateway, observe_pods, engine, decide_all):
    """4 wanted over 2 ready is panic, 3 over 2 is not; down to half at most in one decision."""
    for requests, panics in ((80, True), (60, False)):
        looks = [
            observe_pods(t, [engine()] * 2, gateway=gateway(in_flight=requests)) for t in (0, 2)
        ]
        _, state = decide_all(
            Kpa(target=20.0), [observe_pods(-10, [engine()], gateway=gateway()), *looks]
        )
        assert (state.panic_s is not None) == panics
    looks = [
        observe_pods(0, [engine()], gateway=gateway()),
        observe_pods(2, [engine()] * 9, gateway=gateway()),
    ]
    assert decide_all(Kpa(target=20.0), looks)[0][-1].desired == 4  # floor(9 / 2)


def test_it_starts_in_panic_at_the_current_replicas(gateway, observe_pods, engine, simulate):
    course = simulate(
        Kpa(target=20.0), steady(gateway, observe_pods, engine, lambda t: 0), 120, start=6
    )
    assert set(course[:30]) == {6}
    assert course[-1] == 1


def test_missing_data_holds_until_the_window_is_empty(gateway, observe_pods, engine, decide_all):
    lost = Missing("gateway", "no answer")
    looks = [observe_pods(0, [engine()] * 3, gateway=gateway(in_flight=60))]
    looks += [observe_pods(t, [engine()] * 3, gateway=lost) for t in range(2, 100, 2)]
    decisions, _ = decide_all(Kpa(target=20.0), looks)
    assert {d.desired for d in decisions} == {3}
    assert not decisions[-1].valid


def test_engines_that_cannot_be_read_are_taken_for_average(observe_pods, engine, decide_all):
    looks = [observe_pods(0, [engine(running=30), engine(running=20, waiting=10)], missing=2)]
    assert decide_all(Kpa(target=20.0), looks)[0][0].desired == 6  # 30 x 4 pods / 20


def test_to_zero_and_from_it(gateway, observe_pods, engine, simulate):
    look = steady(gateway, observe_pods, engine, lambda t: 1 if t > 200 else 0)
    course = simulate(Kpa(target=20.0), look, 220, start=1, bounds=Bounds(0, 5))
    assert course[0] == 0
    assert course[-1] == 1


def test_a_delay_holds_the_most_wanted_in_it(gateway, observe_pods, engine, simulate):
    look = steady(gateway, observe_pods, engine, lambda t: 100 if t < 100 else 20)
    course = simulate(Kpa(target=20.0, down_delay_s=120.0), look, 400, start=5)
    quick = simulate(Kpa(target=20.0), look, 400, start=5)
    first, delayed = (next(i for i, n in enumerate(c) if n < 5) for c in (quick, course))
    assert delayed - first == 59  # the last decision for five leaves the window 120 s later
