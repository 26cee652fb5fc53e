"""Inputs of one step of a service's rollout."""

from dataclasses import dataclass

from penstock.core.canary.verdict import Verdict
from penstock.core.observed.children import ObservedState
from penstock.core.rollout.commands import Command
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.spec.rollout import RolloutSpec


@dataclass(frozen=True, slots=True)
class RolloutInputs:
    """Inputs of one rollout step.

    wanted: the revision of the spec. total: replicas for all of the traffic. verdict: the judge's last on
    the revision that is rolled out. command: the user's last, whether read before or not.
    applied_generations: the traffic generation that each gateway applies; None while unknown.
    termination_grace_s: time in which an engine pod has to end once it is deleted.
    """

    spec: RolloutSpec
    observed: ObservedState
    wanted: str
    total: int
    now_s: float
    termination_grace_s: float
    verdict: Verdict | None = None
    command: Command | None = None
    applied_generations: AppliedGenerations | None = None
