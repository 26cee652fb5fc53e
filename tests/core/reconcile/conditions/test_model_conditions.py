"""The conditions SpecValid, ModelNameConflict and ModelReady of a service."""

from dataclasses import replace
from typing import Any

import pytest
from tests.core.reconcile.conditions.observed_engines import (
    OLD,
    deployment,
    observed_with,
    preflight,
)
from tests.core.reconcile.conditions.service_conditions import (
    NEW,
    PASSED,
    SETTLED,
    SPEC,
    condition_of,
)
from tests.support.specs.preflight_messages import REFUSED
from tests.support.specs.service_spec import pod_resources

from penstock.core.observed.children import ObservedState
from penstock.core.reconcile.conditions import conditions
from penstock.core.reconcile.name_conflict import NAMES_NOT_LISTED
from penstock.core.reconcile.plan import Plan
from penstock.core.spec.refusal import Refusal
from penstock.core.spec.resources import ResourceSpec
from penstock.core.spec.service import Object, VariantSpec


def test_a_served_name_that_another_service_has_is_named_with_its_holder() -> None:
    assert condition_of("SpecValid") == ("True", "Valid", "the spec can be served")
    assert condition_of("SpecValid", observed_with(name_taken_by="other")) == (
        "False",
        "ModelNameInUse",
        "the InferenceService other has the model name 'chat' in this namespace already; set "
        "spec.model.name to another name",
    )


def test_a_service_leaves_a_taken_name_to_its_holder_while_its_spec_is_refused() -> None:
    """Names are read from the reason. With another one, an older service would take the name back."""
    refusal = Refusal("InvalidSpec", "spec.replicas: too many")
    observed = observed_with(name_taken_by="other", refusal=refusal)
    assert condition_of("SpecValid", observed) == (
        "False",
        "ModelNameInUse",
        "the InferenceService other has the model name 'chat' in this namespace already; set "
        "spec.model.name to another name. Besides: spec.replicas: too many",
    )


@pytest.mark.parametrize(
    ("message", "reason"),
    [("b/chat has it", "HeldByOtherNamespace"), (NAMES_NOT_LISTED, "NamesNotListed")],
)
def test_a_short_name_that_is_not_the_services_changes_no_other_condition(
    message: str, reason: str
) -> None:
    free, taken = (
        conditions(SPEC, observed_with(name_conflict=text), Plan(OLD, SETTLED, ()), None)
        for text in ("", message)
    )
    *others, conflict = taken
    assert tuple(others) == free
    assert (conflict.type, conflict.status, conflict.reason, conflict.message) == (
        "ModelNameConflict",
        "True",
        reason,
        message,
    )


def test_ranks_on_the_cpu_are_told_of() -> None:
    """Ranks on the CPU work, so the spec is valid, but the user may have forgotten the accelerators."""

    def message(settings: Object, **changes: Any) -> str:
        spec = replace(SPEC, settings=settings, **changes)
        status, reason, message = condition_of("SpecValid", spec=spec)
        assert (status, reason) == ("True", "Valid")
        return message

    plain = "the spec can be served"
    ranks = "ranks of spec.engine.parallelism are processes on the CPU, as"
    assert message({"engine.parallelism.tensor": 1}) == plain
    tensor = {"engine.parallelism.tensor": 2}
    assert message(tensor) == f"{plain}; the 2 {ranks} spec.resources.limits has no accelerators"
    assert f"the 6 {ranks}" in message(tensor | {"engine.parallelism.pipeline": 3})
    gpus = pod_resources(accelerator=("nvidia.com/gpu", 2))
    assert message(tensor, resources=gpus) == plain
    claimed = ResourceSpec(claims=("gpus",))
    assert message(tensor, resources=claimed) == plain
    variants = (
        VariantSpec("gpu", gpus, 1.0, 0, 9),
        VariantSpec("slow", pod_resources(), 1.0, 0, 9),
    )
    assert f"the 2 {ranks} spec.variants[slow].resources.limits" in message(
        tensor, variants=variants
    )


NO_CLAIM = '0/1 nodes are available: persistentvolumeclaim "nosuchclaim" not found. not found'
NO_VOLUME = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
CORRECT_FILES = "or correct the files and run: kubectl penstock rollout restart chat"
FITS = "Q, 2 MiB of weights, 9 tokens of KV cache"


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (observed_with(), ("Unknown", "PreflightPending", "the model has not been checked yet")),
        (observed_with(deployment()), ("True", "Serving", "the revision has engines")),
        (observed_with(refusals={OLD: ("PodForbidden", "no")}), ("False", "PodForbidden", "no")),
        (
            observed_with(deployment(), refusals={OLD: ("PodForbidden", "no")}),
            ("True", "Serving", "the revision has engines"),
        ),
        (
            observed_with(refusals={NEW: ("PodForbidden", "no")}),
            ("Unknown", "PreflightPending", "the model has not been checked yet"),
        ),
        (observed_with(preflight()), ("Unknown", "PreflightRunning", "the model is being checked")),
        (
            observed_with(preflight("Pending")),
            ("Unknown", "PreflightRunning", "the pod p that checks the model has not started yet"),
        ),
        (observed_with(preflight(trouble=("ErrImagePull", "why"))), ("False", "ErrImagePull", "why")),
        (
            observed_with(preflight(trouble=("Unschedulable", NO_CLAIM))),
            (
                "False",
                "Unschedulable",
                '0/1 nodes are available: persistentvolumeclaim "nosuchclaim" not found; create the '
                "claim, or name another one in spec.model.uri, spec.model.cache, "
                "spec.engine.speculative.model.uri or spec.engine.lora.sources",
            ),
        ),
        (
            observed_with(preflight(trouble=("Unschedulable", NO_VOLUME))),
            (
                "False",
                "Unschedulable",
                "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims; kubectl "
                "describe pvc says what the claim waits for",
            ),
        ),
        (observed_with(preflight("Succeeded", PASSED)), ("True", "Fits", FITS)),
        (
            observed_with(preflight("Failed", REFUSED)),
            ("False", "ModelNotFound", f"no model; {CORRECT_FILES}"),
        ),
        (
            observed_with(preflight("Failed", lost="Evicted: m")),
            ("Unknown", "PreflightLost",
             "the preflight was lost with its node and is replaced: Evicted: m"),
        ),
    ],
)  # fmt: skip
def test_model_ready(observed: ObservedState, expected: tuple[str, str, str]) -> None:
    assert condition_of("ModelReady", observed) == expected
