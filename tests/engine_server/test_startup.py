"""Test of the startup timer."""

from collections.abc import Iterator

from penstock_engine.server.startup import StartupTimer


def test_phases_add_up_to_the_startup_time() -> None:
    ticks: Iterator[float] = iter([12.0, 12.5, 20.0])
    startup_timer = StartupTimer(10.0, lambda: next(ticks))
    startup_timer.end_phase("import")
    startup_timer.end_phase("config")
    startup_timer.end_phase("weights")
    assert startup_timer.phases_s == {"import": 2.0, "config": 0.5, "weights": 7.5}
    assert str(startup_timer) == "10.00 s (import 2.00, config 0.50, weights 7.50)"
