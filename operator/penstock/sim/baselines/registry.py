"""Scaling rules by name, Penstock's and the published ones.

The oracle is not in this table, because it is built from the future arrivals.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.learned.iteration import IterationModel
from penstock.core.scaling.rule import Rule
from penstock.sim.baselines.dynamo_load import DynamoLoad
from penstock.sim.baselines.dynamo_throughput import DynamoThroughput
from penstock.sim.baselines.hpa_kv import hpa_kv
from penstock.sim.baselines.hpa_queue import hpa_queue
from penstock.sim.baselines.keda_queue_guard import keda_queue_guard
from penstock.sim.baselines.llmd_slo_aware import llmd_slo_aware
from penstock.sim.baselines.llmd_token_aware import llmd_token_aware
from penstock.sim.baselines.static import Static

Knob: TypeAlias = float | str | bool
Knobs: TypeAlias = dict[str, Knob]
AnyRule: TypeAlias = Rule[Any]


@dataclass(frozen=True, slots=True)
class Published:
    """A rule by its factory, whose parameters are the knobs.

    takes_profile: `profile` is one of them. needs_objectives: it compares latencies with the objectives;
    rules that take a profile may as well.
    """

    make: Callable[..., AnyRule]
    takes_profile: bool = False
    needs_objectives: bool = False

    def build(self, profile: EngineProfile, **knobs: Knob) -> AnyRule:
        """Build the rule. Raises TypeError for an unknown knob."""
        return self.make(profile=profile, **knobs) if self.takes_profile else self.make(**knobs)


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
OURS = ObjectivesRule(prior=IterationModel(0.01, 0.0, 0.0, 0.0))


def penstock(
    profile: EngineProfile,
    loss: float = OURS.loss,
    calm_s: float = OURS.calm_s,
    startup_s: float = OURS.startup_s,
) -> ObjectivesRule:
    """Penstock's rule with an engine profile as `penstock calibrate` measures it."""
    prior = IterationModel(
        profile.base_s, profile.prefill_token_s, profile.sequence_s, profile.kv_token_s
    )
    return ObjectivesRule(
        prior=prior,
        startup_s=startup_s,
        max_num_seqs=profile.max_sequences,
        loss=loss,
        calm_s=calm_s,
    )


PUBLISHED: Mapping[str, Published] = {
    "penstock": Published(penstock, takes_profile=True),
    "static": Published(Static),
    "hpa-kv": Published(hpa_kv),
    "hpa-queue": Published(hpa_queue),
    "keda-queue-guard": Published(keda_queue_guard),
    "llmd-token-aware": Published(llmd_token_aware, takes_profile=True),
    "llmd-slo-aware-measured": Published(llmd_slo_aware, needs_objectives=True),
    "dynamo-throughput": Published(DynamoThroughput, takes_profile=True),
    "dynamo-load": Published(DynamoLoad, takes_profile=True),
    "dynamo": Published(dynamo, takes_profile=True),
}
"""All rules, in the order of the tables."""


def build(name: str, profile: EngineProfile, **knobs: Knob) -> AnyRule:
    """Build a rule by name. Raises ValueError for an unknown name."""
    if name not in PUBLISHED:
        raise ValueError(f"no rule {name!r}; there are {', '.join(PUBLISHED)}")
    return PUBLISHED[name].build(profile, **knobs)
