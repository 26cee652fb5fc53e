"""Inputs of one step of a service's rollout."""

from dataclasses import dataclass

from penstock.core.canary.verdict import Verdict
from penstock.core.observed.children import ObservedState
from penstock.core.rollout.commands import Command
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.spec.rollout import RolloutSpec


@dataclass(frozen=True, slots=True)
class RolloutInputs:
    """Inputs of one rollout step."""

    spec: RolloutSpec
    observed: ObservedState
    wanted: str  # the revision of the spec
    total: int  # replicas for all of the traffic
    now_s: float
    termination_grace_s: float  # time in which an engine pod has to end once it is deleted
    verdict: Verdict | None = None  # the judge's latest verdict on the revision that is rolled out
    command: Command | None = None  # the user's latest command, read before or not
    # The traffic generation that each gateway applies; None while unknown
    applied_generations: AppliedGenerations | None = None
