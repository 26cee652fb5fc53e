"""Preflights of a service with variants: one for each that is checked apart from the others."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.support.specs.preflight_messages import PASSED, REFUSED
from tests.support.specs.service_spec import pod_resources, service_spec

from penstock.core.manifests import engine as manifests
from penstock.core.observed.children import ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.reconcile.conditions import model_ready
from penstock.core.reconcile.preflights import Preflights, plan_preflights
from penstock.core.spec.service import ServiceSpec, VariantSpec

REVISION = "a" * 8
GPU = "nvidia.com/gpu"
ONE, TWO = (pod_resources(accelerator=(GPU, count)) for count in (1, 2))
A = VariantSpec("a", ONE, 1.0, 0, 9, accelerator_memory_bytes=80 << 30)
SMALL = VariantSpec("small", ONE, 1.0, 0, 9, accelerator_memory_bytes=16 << 30)
SPOT = replace(A, name="spot", node_selector={"pool": "spot"})
NAME, SMALL_NAME = f"chat-{REVISION}-preflight", f"chat-{REVISION}-small-preflight"


def service(*variants: VariantSpec, **changes: Any) -> ServiceSpec:
    return service_spec(variants=variants, **changes)


def planned(spec: ServiceSpec, *pods: ObservedPod, **changes: Any) -> Preflights:
    own = manifests.own_pods(spec, REVISION, "image")
    return plan_preflights(spec, ObservedState(pods=pods, **changes), REVISION, own)


def preflight(variant: str = "", said: str | None = PASSED, **changes: Any) -> ObservedPod:
    """A preflight; said: its termination message, None while it runs."""
    name = SMALL_NAME if variant == "small" else NAME
    phase = "Running" if said is None else "Succeeded" if said == PASSED else "Failed"
    pod = ObservedPod(
        name, name, REVISION, "preflight", "", False, False, phase, None, said or "",
        variant=variant,
    )  # fmt: skip
    return replace(pod, **changes)


def created(found: Preflights) -> list[tuple[str, str | None]]:
    """Name and variant of the created pods."""
    metadata = [pod["metadata"] for pod in found.create]
    return [(m["name"], m["labels"].get("serving.penstock.dev/variant")) for m in metadata]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (service_spec(), [(NAME, None)]),
        (service(A), [(NAME, None)]),
        # Other nodes with accelerators of the same memory.
        (service(A, SPOT), [(NAME, None)]),
        (service(A, SPOT, SMALL), [(NAME, "a"), (SMALL_NAME, "small")]),
        (service(A, replace(SMALL, resources=TWO)), [(NAME, "a"), (SMALL_NAME, "small")]),
        # Other runtimes only look for files.
        (service(A, SMALL, settings={"runtime.type": "VLLM"}), [(NAME, None)]),
    ],
)
def test_a_check_for_each_kind_of_variant(
    spec: ServiceSpec, expected: list[tuple[str, str | None]]
) -> None:
    assert created(planned(spec)) == expected


def test_variants_on_other_nodes_are_checked_apart_where_nodes_say_the_memory() -> None:
    a, spot = (replace(each, accelerator_memory_bytes=None) for each in (A, SPOT))
    found = planned(service(a, spot))
    assert [variant for _, variant in created(found)] == ["a", "spot"]
    assert found.unread == {"nodes"}
    assert planned(service(a, spot), devices={"nodes": ()}).unread == frozenset()


def test_each_pod_has_the_memory_and_the_ranks_of_its_variant() -> None:
    spec = service(A, replace(SMALL, resources=TWO))
    memory, ranks = [], []
    for pod in planned(spec).create:
        (container,) = pod["spec"]["containers"]
        variables = {each["name"]: each.get("value") for each in container["env"]}
        memory.append(variables["PENSTOCK_ACCELERATOR_MEMORY_BYTES"])
        ranks.append("--tensor-parallel-size=2" in container["args"])
    assert memory == [str(80 << 30), str(16 << 30)]
    assert ranks == [False, True]


def test_a_larger_check_has_the_cpu_and_the_memory_of_an_engine_but_no_accelerator() -> None:
    large = replace(SMALL, resources=pod_resources("3", "5Gi", accelerator=(GPU, 1)))
    found = planned(service(A, large))
    (container,) = found.larger[SMALL_NAME]["spec"]["containers"]
    taken = {"cpu": "3", "memory": "5Gi"}
    assert container["resources"] == {"requests": taken, "limits": taken}
    (_, usual) = found.create
    (container,) = usual["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "100m", "memory": "256Mi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }


def test_the_revision_has_engines_once_all_have_passed() -> None:
    spec = service(A, SMALL)
    assert planned(spec, preflight("a"), preflight("small")).is_passed
    for small in (preflight("small", None), preflight("small", REFUSED)):
        found = planned(spec, preflight("a"), small)
        assert (found.is_passed, found.create, found.outdated) == (False, (), ())
    assert created(planned(spec, preflight("a"))) == [(SMALL_NAME, "small")]


def test_the_check_of_a_removed_variant_is_dropped() -> None:
    a, small = preflight("a"), preflight("small", REFUSED)
    found = planned(service(A), a, small)
    assert (found.is_passed, found.create, found.outdated) == (False, (), (small,))
    assert planned(service(A), a).is_passed


def test_the_only_check_is_that_of_the_first_variant_once_another_is_added() -> None:
    found = planned(service(A, SMALL), preflight())
    assert (created(found), found.outdated) == ([(SMALL_NAME, "small")], ())


def test_a_check_of_what_the_variant_was_before_is_repeated() -> None:
    for said in (PASSED, REFUSED):
        old = preflight(said=said, template_hash="old")
        found = planned(service(A), old)
        assert (found.is_passed, found.outdated) == (False, (old,))
    assert planned(service(A), preflight(said=None, template_hash="old")).outdated == ()


def test_the_condition_names_the_variant_that_the_model_does_not_fit() -> None:
    refused = json.dumps({"ok": False, "reason": "MemoryTooSmall", "message": "too large"})
    passed = "on variant a: Q, 0 MiB of weights, 9 tokens of KV cache"
    for small, expected in (
        (preflight("small", refused), ("False", "MemoryTooSmall", "on variant small: too large")),
        (preflight("small", None), ("Unknown", "PreflightRunning", "the model is being checked")),
        (
            preflight("small", None, trouble=("Unschedulable", "no node")),
            ("False", "Unschedulable", "on variant small: no node"),
        ),
        (preflight("small"), ("True", "Fits", f"{passed}; {passed.replace(' a:', ' small:')}")),
    ):
        found = model_ready(ObservedState(pods=(preflight("a"), small)), REVISION)
        assert (found.status, found.reason, found.message) == expected
