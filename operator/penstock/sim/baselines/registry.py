"""Scaling rules by name, Penstock's and the published ones.

The oracle is not in this table, because it is built from the future arrivals.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.engine_profile import EngineProfile
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


def split_knob(text: str) -> tuple[str, str]:
    """Split `name=value` of --param. Raises ValueError."""
    name, is_given, value = text.partition("=")
    if not is_given:
        raise ValueError(f"--param {text!r} is not of the form name=value")
    return name.strip().replace("-", "_"), value.strip()


def parse_knob(value: str) -> Knob:
    """Parse the value of --param: a boolean, else a number, else a text."""
    if value in ("true", "false"):
        return value == "true"
    for number in (int, float):
        with suppress(ValueError):
            return number(value)
    return value


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


def iteration_model(profile: EngineProfile) -> IterationModel:
    """Model of the iteration times of a profile, as the scaling rule by objectives has it."""
    return IterationModel(
        profile.base_s, profile.prefill_token_s, profile.sequence_s, profile.kv_token_s
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
    return ObjectivesRule(
        prior=iteration_model(profile),
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
