"""The interpreter's switch interval follows the device."""

import sys

import pytest

from penstock_engine.machine.interpreter import SWITCH_INTERVAL_S, shorten_gil_waits


@pytest.mark.parametrize(("device", "expected_s"), [("cpu", 0.005), ("cuda", SWITCH_INTERVAL_S)])
def test_threads_take_turns_more_often_beside_a_device(device: str, expected_s: float) -> None:
    before_s = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        shorten_gil_waits(device)
        assert sys.getswitchinterval() == pytest.approx(expected_s)
    finally:
        sys.setswitchinterval(before_s)
