"""Scaling rules by name, Penstock's and the published ones, with the grid of knobs to tune.

The oracle is not in this table, because it is built from the future arrivals.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

from penstock.core.scaling.by_objectives.rule import Sizing
from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.learned.iteration import IterationModel
from penstock.core.scaling.rule import Rule
from penstock.sim.baselines.aibrix_apa import AibrixApa
from penstock.sim.baselines.dynamo_load import DynamoLoad
from penstock.sim.baselines.dynamo_throughput import DynamoThroughput
from penstock.sim.baselines.hpa_busy import hpa_busy
from penstock.sim.baselines.hpa_kv import hpa_kv
from penstock.sim.baselines.hpa_queue import hpa_queue
from penstock.sim.baselines.keda_queue_guard import keda_queue_guard
from penstock.sim.baselines.kpa import Kpa
from penstock.sim.baselines.kubeai import KubeAi
from penstock.sim.baselines.llmd_slo_aware import llmd_slo_aware
from penstock.sim.baselines.llmd_token_aware import llmd_token_aware
from penstock.sim.baselines.ray_serve import RayServe
from penstock.sim.baselines.static import Static
from penstock.sim.baselines.wva_v1 import wva_v1
from penstock.sim.baselines.wva_v2 import wva_v2

Knob: TypeAlias = float | str | bool
Knobs: TypeAlias = dict[str, Knob]
AnyRule: TypeAlias = Rule[Any]


@dataclass(frozen=True, slots=True)
class Published:
    """A rule with its tuning grid.

    grid: values per knob. The first knob trades cost against attainment; its most expensive value comes
    first. needs_objectives: it compares latencies with the objectives; rules that take a profile may as
    well. ordered: two knobs, the first of which must stay below the second.
    """

    make: Callable[..., AnyRule]
    grid: Mapping[str, tuple[Knob, ...]]
    takes_profile: bool = False
    needs_objectives: bool = False
    ordered: tuple[str, str] | None = None

    def build(self, profile: EngineProfile, **knobs: Knob) -> AnyRule:
        """Build the rule. Raises TypeError for an unknown knob."""
        return self.make(profile=profile, **knobs) if self.takes_profile else self.make(**knobs)

    def combinations(self) -> Iterator[Knobs]:
        """All valid points of the grid."""
        for values in product(*self.grid.values()):
            knobs = dict(zip(self.grid, values, strict=True))
            if self.makes_sense(knobs):
                yield knobs

    def makes_sense(self, knobs: Knobs) -> bool:
        """Whether the ordered knobs are in order."""
        if self.ordered is None:
            return True
        low, high = (float(knobs[name]) for name in self.ordered)
        return low < high


def dynamo(
    profile: EngineProfile,
    objective_share: float = 1.0,
    down_sensitivity: float = 0.8,
) -> DynamoLoad:
    """Dynamo planner with both modes: throughput sets the minimum of the load mode."""
    floor = DynamoThroughput(profile=profile, objective_share=objective_share)
    return DynamoLoad(
        profile=profile,
        objective_share=objective_share,
        down_sensitivity=down_sensitivity,
        throughput=floor,
    )


# Source of the default knobs.
OURS = Sizing(prior=IterationModel(0.01, 0.0, 0.0, 0.0))


def penstock(
    profile: EngineProfile,
    loss: float = OURS.loss,
    calm_s: float = OURS.calm_s,
    startup_s: float = OURS.startup_s,
) -> Sizing:
    """Penstock's rule with an engine profile as `penstock calibrate` measures it."""
    prior = IterationModel(
        profile.base_s, profile.prefill_token_s, profile.sequence_s, profile.kv_token_s
    )
    return Sizing(
        prior=prior,
        startup_s=startup_s,
        max_num_seqs=profile.max_sequences,
        loss=loss,
        calm_s=calm_s,
    )


DOWN_WINDOW = {"down_window_s": (60.0, 300.0, 600.0)}
SLO_BAND = {
    "up_at": (0.25, 0.35, 0.45, 0.55, 0.7, 0.85, 1.0),
    "down_at": (0.15, 0.25, 0.4),
    "down_period_s": (120.0, 300.0),
}

PUBLISHED: Mapping[str, Published] = {
    "penstock": Published(
        penstock,
        {"loss": (0.02, 0.06, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)},
        takes_profile=True,
    ),
    "static": Published(Static, {"replicas": tuple(range(16, 0, -1))}),
    "hpa-busy": Published(hpa_busy, {"target": (0.4, 0.6, 0.8, 0.9), **DOWN_WINDOW}),
    "hpa-kv": Published(hpa_kv, {"target": (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), **DOWN_WINDOW}),
    "hpa-queue": Published(hpa_queue, {"target": (0.1, 0.25, 0.5, 1.0, 2.0, 5.0), **DOWN_WINDOW}),
    "keda-queue-guard": Published(
        keda_queue_guard,
        {"running_target": (8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0), **DOWN_WINDOW},
    ),
    "kpa": Published(
        Kpa,
        {
            "target": (8.0, 16.0, 24.0, 32.0, 48.0, 70.0),
            "stable_window_s": (60.0, 180.0),
            "down_delay_s": (0.0, 300.0),
        },
    ),
    "aibrix-apa": Published(
        AibrixApa,
        {
            "target": (0.2, 0.3, 0.4, 0.5, 0.6),
            "window_s": (30.0, 180.0),
            "guards_pending": (False, True),
        },
    ),
    "llmd-token-aware": Published(
        llmd_token_aware,
        {
            "backlog_s": (0.2, 0.5, 1.5),
            "kv_target": (0.3, 0.45, 0.6, 0.8),
            "up_period_s": (15.0, 60.0, 180.0),
        },
        takes_profile=True,
    ),
    "llmd-slo-aware": Published(
        llmd_slo_aware, SLO_BAND, takes_profile=True, ordered=("down_at", "up_at")
    ),
    "llmd-slo-aware-measured": Published(
        llmd_slo_aware, SLO_BAND, needs_objectives=True, ordered=("down_at", "up_at")
    ),
    "wva-v1": Published(
        wva_v1,
        {
            "kv_threshold": (0.5, 0.65, 0.8),
            "kv_spare": (0.1, 0.2, 0.3),
            "hpa_window_s": (0.0, 120.0),
        },
    ),
    "wva-v2": Published(
        wva_v2,
        {
            "up_at": (0.4, 0.55, 0.7, 0.85),
            "down_at": (0.3, 0.45, 0.6, 0.7),
            "hpa_window_s": (0.0, 120.0),
        },
        takes_profile=True,
        ordered=("down_at", "up_at"),
    ),
    "dynamo-throughput": Published(
        DynamoThroughput,
        {
            "objective_share": (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.7, 1.0),
            "predictor": ("constant", "kalman"),
        },
        takes_profile=True,
    ),
    "dynamo-load": Published(
        DynamoLoad,
        {"objective_share": (0.2, 0.35, 0.5, 0.75, 1.0), "down_sensitivity": (0.4, 0.6, 0.8)},
        takes_profile=True,
    ),
    "dynamo": Published(
        dynamo,
        {"objective_share": (0.2, 0.35, 0.5, 0.75, 1.0), "down_sensitivity": (0.4, 0.6, 0.8)},
        takes_profile=True,
    ),
    "ray-serve": Published(
        RayServe,
        {
            "target_ongoing_requests": (2.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0),
            "upscale_delay_s": (0.0, 30.0),
            "downscale_delay_s": (120.0, 600.0),
        },
    ),
    "kubeai": Published(
        KubeAi,
        {
            "target_requests": (8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 100.0),
            "time_window_s": (60.0, 180.0, 600.0),
            "scale_down_delay_s": (30.0, 300.0),
        },
    ),
}
"""All rules, in the order of the tables."""


def build(name: str, profile: EngineProfile, **knobs: Knob) -> AnyRule:
    """Build a rule by name. Raises ValueError for an unknown name."""
    if name not in PUBLISHED:
        raise ValueError(f"no rule {name!r}; there are {', '.join(PUBLISHED)}")
    return PUBLISHED[name].build(profile, **knobs)
