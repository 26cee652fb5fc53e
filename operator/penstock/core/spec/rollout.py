"""Rollout settings of a service, with all defaults applied."""

from dataclasses import dataclass, field
from typing import Literal

from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.resources import Quantities, ResourceSpec

Strategy = Literal["Canary", "BlueGreen", "Rolling", "Recreate"]
Comparison = Literal["FreshControl", "Stable"]
# Acceptance of a revision of a service at zero replicas: Try starts engines of it first, Accept starts none.
AtZero = Literal["Try", "Accept"]
Promotion = Literal["Automatic", "Manual"]
# A number of replicas, or a percentage of the desired number such as "25%".
Amount = int | str

EVALUATION_CPU, EVALUATION_MEMORY = "100m", "256Mi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """Environment variable of an evaluation. secret: (name, key) of the Secret with its value."""

    name: str
    value: str = ""
    secret: tuple[str, str] | None = None


def evaluation_resources(requests: Quantities, limits: Quantities) -> ResourceSpec:
    """The resources of an evaluation with the defaults of CPU and memory."""
    named = requests | limits
    requests = requests if "cpu" in named else {"cpu": EVALUATION_CPU} | requests
    limits = limits if "memory" in named else {"memory": EVALUATION_MEMORY} | limits
    return ResourceSpec(limits | requests, limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSpec:
    """Job that tests the canary. The canary is rolled back unless the Job succeeds."""

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    timeout_s: float = 600.0
    resources: ResourceSpec = field(default_factory=lambda: evaluation_resources({}, {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpec:
    """Rollout settings."""

    strategy: Strategy = "Rolling"
    canary: CanarySpec = field(default_factory=CanarySpec)
    # Arm that a canary is compared with; FreshControl: new pods of the stable revision
    comparison: Comparison = "FreshControl"
    promotion: Promotion = "Automatic"  # of BlueGreen; Manual waits for a user
    # Time for which a BlueGreen rollout keeps the old pods, for a rollback
    scale_down_delay_s: float = 300.0
    # max_surge, max_unavailable: of Rolling
    max_surge: Amount = 1
    max_unavailable: Amount = 0
    at_zero: AtZero = "Try"
    progress_deadline_s: float = 600.0  # for pods that start
    history: int = 10  # revisions that are remembered besides those in use
    evaluation: EvaluationSpec | None = None  # of a canary, where the user wants one

    @property
    def has_control(self) -> bool:
        """Whether a canary is compared with a control."""
        return self.comparison == "FreshControl"
