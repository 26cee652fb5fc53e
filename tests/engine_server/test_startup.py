from collections.abc import Iterator

from penstock_engine.server.startup import StartUp


def test_phases_add_up_to_the_whole() -> None:
    ticks: Iterator[float] = iter([12.0, 12.5, 20.0])
    start_up = StartUp(10.0, lambda: next(ticks))
    start_up.ended("import")
    start_up.ended("config")
    start_up.ended("weights")
    assert start_up.phases_s == {"import": 2.0, "config": 0.5, "weights": 7.5}
    assert str(start_up) == "10.00 s (import 2.00, config 0.50, weights 7.50)"
