"""Initial stakes of a canary's tests in the combined e-value."""

from typing import Literal

Metric = Literal[
    "TTFT", "TTFT with queues", "TPOT", "Errors", "Objective violations", "Output length"
]

# Initial stakes of the tests. TTFT has the largest variance and errors are rarest, so both get most; TPOT
# has a third of TTFT's variance and recovers from a small stake within a minute.
STAKES: dict[Metric, float] = {
    "TTFT": 0.50,
    "TTFT with queues": 0.0,
    "TPOT": 0.04,
    "Errors": 0.36,
    "Objective violations": 0.06,
    "Output length": 0.04,
}

# Initial stakes while no answer of the control was streamed: the times of whole answers have the stakes of
# TTFT and TPOT, which have no data. Without that, a canary ten times as slow kept its share for an hour.
STAKES_WITHOUT_STREAMS: dict[Metric, float] = STAKES | {
    "TTFT": 0.0,
    "TPOT": 0.0,
    "TTFT with queues": STAKES["TTFT"] + STAKES["TPOT"] + STAKES["TTFT with queues"],
}
