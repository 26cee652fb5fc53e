"""Schema of spec.scaling: the number of replicas and its bounds."""

from typing import Literal

from pydantic import Field

from penstock.api.schema.defaults import core_default, core_percentage, optional
from penstock.api.schema.rules import Model, Rule
from penstock.api.schema.scalars import Duration, PositiveDuration
from penstock.core.spec.service import ScalingSpec

RULES = (
    Rule(
        "self.scaling.minReplicas <= self.scaling.maxReplicas",
        lambda load: load.scaling.min_replicas <= load.scaling.max_replicas,
        "scaling.minReplicas must not be greater than scaling.maxReplicas; raise maxReplicas",
    ),
    Rule(
        "self.scaling.mode != 'External' || self.scaling.minReplicas > 0",
        lambda load: load.scaling.mode != "External" or load.scaling.min_replicas > 0,
        "scaling.minReplicas 0 requires scaling.mode Active or DryRun; in mode External set replicas to 0",
    ),
    Rule(
        "!has(self.scaling.idleAfter) || self.scaling.minReplicas == 0",
        lambda load: load.scaling.idle_after is None or load.scaling.min_replicas == 0,
        "scaling.idleAfter requires scaling.minReplicas 0; set it, or remove idleAfter",
    ),
    Rule(
        "self.scaling.mode == 'External' || !has(self.replicas)",
        lambda load: load.scaling.mode == "External" or load.replicas is None,
        "replicas requires scaling.mode External; remove it, or set the mode",
    ),
    # GET on the scale subresource fails if spec.replicas is unset, so no HorizontalPodAutoscaler can start.
    Rule(
        "self.scaling.mode != 'External' || has(self.replicas)",
        lambda load: load.scaling.mode != "External" or load.replicas is not None,
        "scaling.mode External needs replicas, the number that kubectl scale, an HPA or KEDA "
        "changes; set it, such as 1",
    ),
)


class Targets(Model):
    """Load of each replica above which replicas are added. Used only without spec.objectives."""

    kv_utilization_percent: int | None = optional(
        "Percentage of each replica's KV cache above which replicas are added.",
        ge=10,
        le=95,
        json_schema_extra=core_percentage(ScalingSpec, "kv_utilization_target"),
    )
    queue_length: int | None = optional(
        "Number of waiting requests per replica above which replicas are added.",
        ge=1,
        le=10_000,
        json_schema_extra=core_default(ScalingSpec, "queue_length_target"),
    )


class Scaling(Model):
    """Number of replicas and its bounds."""

    mode: Literal["Active", "DryRun", "External"] = Field(
        default="Active",
        description=(
            "Who sets the number of replicas. Active: Penstock. DryRun: Penstock decides "
            "and records the number but changes nothing. External: spec.replicas, which "
            "kubectl scale, an HPA or KEDA may write."
        ),
    )
    min_replicas: int = Field(
        default=1,
        description=(
            "Minimum number of replicas. With 0 there is none while no request comes; the next one "
            "starts a replica, and waits for it."
        ),
        ge=0,
        le=1000,
    )
    max_replicas: int = Field(default=1, description="Maximum number of replicas.", ge=1, le=1000)
    targets: Targets | None = optional(
        "Load of each replica above which replicas are added. Refused with spec.objectives."
    )
    idle_after: PositiveDuration | None = optional(
        "Time without a request at any gateway after which a service with minReplicas 0 has no "
        "replica, as a duration such as 90s or 30m.",
        json_schema_extra=core_default(ScalingSpec, "idle_after_s"),
    )
    scale_down_delay: Duration | None = optional(
        "Time for which fewer replicas must have been enough before replicas are "
        "removed, as a duration such as 60s or 5m. With objectives, at least the time "
        "that pods take to start.",
        json_schema_extra=core_default(ScalingSpec, "scale_down_delay_s"),
    )
    quota_priority: int | None = optional(
        "Priority of this service when a ResourceQuota allows fewer accelerators than "
        "the services of the namespace need. After the minReplicas of all services, "
        "higher priorities are served first; services of equal priority share evenly.",
        ge=-1_000_000,
        le=1_000_000,
        json_schema_extra=core_default(ScalingSpec, "quota_priority"),
    )
