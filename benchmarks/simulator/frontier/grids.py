"""Grids of the knobs that are tuned, by rule."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from penstock.sim.baselines.registry import Knob, Knobs


@dataclass(frozen=True, slots=True)
class Grid:
    """Values of each knob of a rule.

    The first knob trades cost against attainment; its most expensive value comes first. ordered: two knobs,
    the first of which must stay below the second.
    """

    values: Mapping[str, tuple[Knob, ...]]
    ordered: tuple[str, str] | None = None

    def combinations(self) -> Iterator[Knobs]:
        """All valid points of the grid."""
        for values in product(*self.values.values()):
            knobs = dict(zip(self.values, values, strict=True))
            if self.makes_sense(knobs):
                yield knobs

    def makes_sense(self, knobs: Knobs) -> bool:
        """Whether the ordered knobs are in order."""
        if self.ordered is None:
            return True
        low, high = (float(knobs[name]) for name in self.ordered)
        return low < high


DOWN_WINDOW = {"down_window_s": (60.0, 300.0, 600.0)}
DYNAMO_LOAD = {
    "objective_share": (0.2, 0.35, 0.5, 0.75, 1.0),
    "down_sensitivity": (0.4, 0.6, 0.8),
}

GRIDS: Mapping[str, Grid] = {
    "penstock": Grid({"loss": (0.02, 0.06, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)}),
    "static": Grid({"replicas": tuple(range(16, 0, -1))}),
    "hpa-kv": Grid({"target": (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), **DOWN_WINDOW}),
    "hpa-queue": Grid({"target": (0.1, 0.25, 0.5, 1.0, 2.0, 5.0), **DOWN_WINDOW}),
    "keda-queue-guard": Grid(
        {"running_target": (8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0), **DOWN_WINDOW}
    ),
    "llmd-token-aware": Grid(
        {
            "backlog_s": (0.2, 0.5, 1.5),
            "kv_target": (0.3, 0.45, 0.6, 0.8),
            "up_period_s": (15.0, 60.0, 180.0),
        }
    ),
    "llmd-slo-aware-measured": Grid(
        {
            "up_at": (0.25, 0.35, 0.45, 0.55, 0.7, 0.85, 1.0),
            "down_at": (0.15, 0.25, 0.4),
            "down_period_s": (120.0, 300.0),
        },
        ordered=("down_at", "up_at"),
    ),
    "dynamo-throughput": Grid(
        {
            "objective_share": (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.7, 1.0),
            "predictor": ("constant", "kalman"),
        }
    ),
    "dynamo-load": Grid(DYNAMO_LOAD),
    "dynamo": Grid(DYNAMO_LOAD),
    "oracle": Grid({"share": (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.2)}),
}
"""In the order of the tables."""
