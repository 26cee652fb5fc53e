"""Converts an InferenceService from the API server to the flat record of core."""

from typing import Any

from pydantic import ValidationError

from penstock.api.conversion.rollouts import rollout_spec
from penstock.api.conversion.scalars import quantities
from penstock.api.conversion.settings import settings_of
from penstock.api.inferenceservice import objectives, variants
from penstock.api.inferenceservice.kind import InferenceServiceSpec
from penstock.api.inferenceservice.model import ModelSource
from penstock.api.inferenceservice.resources import Resources
from penstock.api.inferenceservice.scaling import Targets
from penstock.api.schema.defaults import without_none
from penstock.api.schema.scalars import Quantity
from penstock.core.formats.quantity import parse_duration_s, whole_quantity
from penstock.core.formats.strategic_merge import is_keyed, merge
from penstock.core.runtimes.pod_models import fetched_models, mounted_models
from penstock.core.runtimes.refusals import refused_settings
from penstock.core.spec.adapter_sources import adapter_sources, takes_adapters
from penstock.core.spec.fields import RECORDED
from penstock.core.spec.model_location import ModelLocation
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.resources import ResourceSpec
from penstock.core.spec.service import (
    ENGINE_CONTAINER,
    ScalingSpec,
    ServiceSpec,
    VariantSpec,
)


class InvalidService(Exception):
    """The spec is invalid for this operator. The text says which field and why.

    reason: of the condition SpecValid.
    """

    def __init__(self, message: str, reason: str = "InvalidSpec") -> None:
        super().__init__(message)
        self.reason = reason


def to_core(body: dict[str, Any]) -> ServiceSpec:
    """Convert an InferenceService. Raises InvalidService if it is invalid, or its runtime cannot serve it."""
    service = parse_service(body)
    _require_time_to_drain(service)
    _require_fetched_model(service)
    _require_own_cache(service)
    if refusals := list(refused_settings(service)):
        raise InvalidService("; ".join(refusals), "UnsupportedByRuntime")
    return service


def parse_service(body: dict[str, Any]) -> ServiceSpec:
    """Convert an InferenceService without the check whether its runtime can serve it. Raises InvalidService.

    For revisions whose pods exist: their settings may not suit the accelerators of the current variants.
    """
    metadata = body["metadata"]
    try:
        spec = InferenceServiceSpec.model_validate(body["spec"])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in ("spec", *first["loc"]))
        raise InvalidService(f"{where}: {first['msg']}") from error
    _require_engine(spec.template.spec)
    return ServiceSpec(
        **_identity(metadata),
        model_name=spec.model.name or metadata["name"],
        model_uri=spec.model.uri,
        resources=_resources(spec.resources),
        scaling=_scaling(spec),
        external_replicas=1 if spec.replicas is None else spec.replicas,
        rollout=rollout_spec(spec.rollout),
        template=spec.template.model_dump(exclude_defaults=True),
        variants=tuple(_variant(each, spec) for each in spec.variants),
        recorded_fields=_recorded_fields(spec),
        settings=settings_of(spec),
        **_fetching(spec.model),
        **without_none(termination_grace_s=spec.termination_grace_period_seconds),
    )


def _fetching(wanted: ModelSource) -> dict[str, Any]:
    """The fields of ServiceSpec about fetched models."""
    secret, cache = wanted.secret_ref, wanted.cache
    return without_none(
        model_secret=secret and secret.name,
        model_cache_claim=cache and cache.claim_name,
        model_cache_bytes=cache and _bytes(cache.size_limit),
        model_cache_type=cache and cache.type,
    )


def _identity(metadata: dict[str, Any]) -> dict[str, Any]:
    """The fields of ServiceSpec that are in the metadata."""
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "generation": metadata["generation"],
        "created_at": metadata["creationTimestamp"],
    }


def outline(body: dict[str, Any]) -> ServiceSpec:
    """The spec of a service whose spec is refused: as far as it can be read, else only its metadata."""
    try:
        return parse_service(body)
    except InvalidService:
        metadata, model = body["metadata"], body["spec"]["model"]
        return ServiceSpec(
            **_identity(metadata),
            model_name=str(model.get("name", metadata["name"])),
            model_uri="",
            scaling=ScalingSpec("Active", min_replicas=1, max_replicas=1),
            external_replicas=1,
        )


def _recorded_fields(spec: InferenceServiceSpec) -> dict[str, Any]:
    """The fields that a revision records, without those that only a later version knows.

    This version's pods do not have them, so a rollback to the revision must not bring them back.
    """
    written = spec.model_dump(by_alias=True, exclude_unset=True)
    return {name: written[name] for name in RECORDED if name in written}


def _require_engine(overrides: dict[str, Any]) -> None:
    """Raise InvalidService if the pod template removes the engine from its pod."""
    made = merge({"containers": [{"name": ENGINE_CONTAINER, "image": "-"}]}, overrides)
    containers = made.get("containers")
    if is_keyed(containers, "name") and any(
        each.get("name") == ENGINE_CONTAINER and each.get("image") for each in containers
    ):
        return
    raise InvalidService(
        f"spec.template.spec.containers must be a list that keeps the container {ENGINE_CONTAINER} "
        "and its image"
    )


def _require_fetched_model(service: ServiceSpec) -> None:
    """Raise InvalidService for settings about fetched models if no model is fetched.

    A claim has the fetched adapters too.
    """
    if fetched_models(service):
        return
    for field, value in (
        ("secretRef", service.model_secret),
        ("cache", None if takes_adapters(service) else service.model_cache_claim),
        ("cache", service.uses_node_cache or None),
    ):
        if value is not None:
            raise InvalidService(
                f"spec.model.{field} has no effect on a model in a volume: remove it, or set "
                "spec.model.uri to a source that is fetched, such as hf://ORG/NAME"
            )


def _require_own_cache(service: ServiceSpec) -> None:
    """Raise InvalidService if the cache's claim has the model or adapters too.

    Two volumes of one claim, of which one is read-only, can keep a pod from starting.
    """
    mounted = [*(model.uri for model in mounted_models(service)), *adapter_sources(service)]
    claim = service.model_cache_claim
    if claim is not None and claim in {ModelLocation.parse(uri).claim for uri in mounted}:
        raise InvalidService(
            f"spec.model.cache.claimName is the claim of pvc://{claim}, which pods mount read-only: name "
            "another claim"
        )


def _require_time_to_drain(service: ServiceSpec) -> None:
    """Raise InvalidService if the pod template ends pods before their engine has finished its requests.

    The time that an engine has for this is an argument, which spec.terminationGracePeriodSeconds sets.
    """
    field = "terminationGracePeriodSeconds"
    grace_s = service.template.get("spec", {}).get(field)
    if isinstance(grace_s, int) and grace_s < service.termination_grace_s:
        raise InvalidService(
            f"spec.template.spec.{field} is {grace_s}, less than the {service.termination_grace_s} seconds "
            f"of spec.{field}, by which engines end: change that field instead"
        )


def _scaling(spec: InferenceServiceSpec) -> ScalingSpec:
    scaling, targets = spec.scaling, spec.scaling.targets or Targets()
    percent, delay = targets.kv_utilization_percent, scaling.scale_down_delay
    idle_after = scaling.idle_after
    return ScalingSpec(
        mode=scaling.mode,
        min_replicas=scaling.min_replicas,
        max_replicas=scaling.max_replicas,
        objectives=_objectives(spec.objectives),
        **without_none(
            kv_utilization_target=None if percent is None else percent / 100,
            queue_length_target=targets.queue_length,
            scale_down_delay_s=None if delay is None else parse_duration_s(delay),
            idle_after_s=None if idle_after is None else parse_duration_s(idle_after),
            quota_priority=scaling.quota_priority,
        ),
    )


def _resources(wanted: Resources) -> ResourceSpec:
    return ResourceSpec.of(
        quantities(wanted.requests),
        quantities(wanted.limits),
        tuple(claim.name for claim in wanted.claims),
    )


def _bytes(quantity: Quantity | None) -> int | None:
    return None if quantity is None else whole_quantity(quantity)


def _variant(wanted: variants.Variant, spec: InferenceServiceSpec) -> VariantSpec:
    resources = spec.resources if wanted.resources is None else wanted.resources
    most = spec.scaling.max_replicas
    return VariantSpec(
        name=wanted.name,
        resources=_resources(resources),
        node_selector=wanted.node_selector,
        tolerations=tuple(
            each.model_dump(by_alias=True, exclude_none=True) for each in wanted.tolerations
        ),
        accelerator_memory_bytes=_bytes(wanted.accelerator_memory),
        price_per_hour=float(wanted.price_per_hour),
        min_replicas=wanted.min_replicas,
        max_replicas=most if wanted.max_replicas is None else min(most, wanted.max_replicas),
    )


def _objectives(wanted: objectives.Objectives | None) -> Objectives | None:
    if wanted is None:
        return None
    return Objectives.parse(wanted.ttft, wanted.tpot, wanted.attainment)
