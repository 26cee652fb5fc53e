"""Settings of the Python interpreter for a process that launches kernels."""

import sys

# Time that the engine's thread waits for the GIL while a thread of the server computes. Python's default of
# 5 ms is paid after each wait for the device, which gives the GIL away. Measured on a CPU, beside a thread
# that never waits: 200 small operations and a wait of 2 ms took 12 ms or more in the median, and 4 to 9 ms
# with this value. They were no faster with a smaller one.
SWITCH_INTERVAL_S = 0.0005


def shorten_gil_waits(device: str) -> None:
    """Let threads take the GIL from each other sooner, where steps are computed by a device.

    On the CPU the threads compete for cores, too, and the default stays. device: cpu or cuda.
    """
    if device != "cpu":
        sys.setswitchinterval(SWITCH_INTERVAL_S)
