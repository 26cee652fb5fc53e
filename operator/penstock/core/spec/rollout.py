"""Rollout settings of a service, with all defaults applied."""

from dataclasses import dataclass, field
from typing import Literal

from penstock.core.spec.canary import CanarySpec

Strategy = Literal["Canary", "BlueGreen", "Rolling", "Recreate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """Environment variable of an evaluation. secret: (name, key) of the Secret with its value."""

    name: str
    value: str = ""
    secret: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSpec:
    """A Job that tries the canary, and whose exit decides."""

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    timeout_s: float = 600.0
    cpu: str = "100m"
    memory: str = "256Mi"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpec:
    """with_control: fresh pods of the stable revision are what the canary is compared with.

    is_switched_automatically: whether a BlueGreen rollout switches as soon as its pods are ready.
    previous_kept_s: how long a BlueGreen rollout keeps the old pods for a rollback. max_surge,
    max_unavailable: of a Rolling one, in replicas. progress_deadline_s: for pods that start. history:
    revisions that are remembered besides those in use. evaluation: of a canary, where the user wants
    one.
    """

    strategy: Strategy = "Rolling"
    canary: CanarySpec = field(default_factory=CanarySpec)
    with_control: bool = True
    is_switched_automatically: bool = True
    previous_kept_s: float = 300.0
    max_surge: int = 1
    max_unavailable: int = 0
    progress_deadline_s: float = 600.0
    history: int = 10
    evaluation: EvaluationSpec | None = None
