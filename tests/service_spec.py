"""A small valid ServiceSpec, changed field by field."""

from dataclasses import replace
from typing import Any

from penstock.core.spec.service import ScalingSpec, ServiceSpec

SMALL = ServiceSpec(
    namespace="default", name="chat", uid="u", generation=1, created_at="", model_name="chat",
    model_uri="pvc://m", max_num_seqs=32, seed=0,
    cpu="1", memory="1Gi", accelerator=None,
    scaling=ScalingSpec("Active", 1, 9), external_replicas=1,
)  # fmt: skip


def service_spec(**changes: Any) -> ServiceSpec:
    return replace(SMALL, **changes)
