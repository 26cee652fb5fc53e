"""Tests of the memory of accelerators: by resource name, by the nodes that may run a pod, or unknown."""

from dataclasses import replace
from typing import Any

import pytest
from service_spec import pod_resources, service_spec

from penstock.core.manifests.engine import own_pods
from penstock.core.observed.accelerator_memory import (
    MEMORY_LABEL,
    is_labelled,
    mig_bytes,
    smallest_bytes,
)
from penstock.core.observed.children import ObservedState
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.reconcile.plan import Plan, plan
from penstock.core.spec.service import Object, ServiceSpec, VariantSpec

GPU = "nvidia.com/gpu"
GIB = 2**30
NOW_S = 1_800_000_000.0
VARIABLE = "PENSTOCK_ACCELERATOR_MEMORY_BYTES"


def node(gib: int, count: int = 8, taints: list[Object] | None = None, **labels: str) -> Object:
    return {
        "metadata": {
            "name": f"node-{gib}", "labels": {MEMORY_LABEL: str(gib * 1024), **labels},
        },
        "spec": {"taints": taints or []},
        "status": {"allocatable": {"cpu": "8", GPU: str(count)}},
    }  # fmt: skip


def affinity(*terms: Object) -> Object:
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
    }
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, "values": list(values)}


SMALL, LARGE = node(24, pool="small"), node(80, pool="large")
TEAM = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
TAINTED = node(16, taints=TEAM)


@pytest.mark.parametrize(
    ("pod", "nodes", "gib"),
    [
        ({}, [], None),
        ({}, [SMALL, LARGE], 24),
        ({"nodeSelector": {"pool": "large"}}, [SMALL, LARGE], 80),
        ({"nodeSelector": {"pool": "none"}}, [SMALL, LARGE], None),
        ({}, [node(24, count=1), LARGE], 80),  # one GPU is too few
        ({}, [node(24, count=0)], None),
        ({}, [{"metadata": {"name": "new", "labels": {MEMORY_LABEL: "1024"}}}, LARGE], 80),
        (affinity({"matchExpressions": [expression("pool", "In", "large")]}), [SMALL, LARGE], 80),
        (affinity({"matchExpressions": [expression("pool", "NotIn", "small")]}), [SMALL, LARGE], 80),
        (
            affinity({"matchExpressions": [expression(MEMORY_LABEL, "Gt", "30000")]}),
            [SMALL, LARGE], 80,
        ),
        (
            affinity({"matchFields": [expression("metadata.name", "In", "node-80")]}),
            [SMALL, LARGE], 80,
        ),
        (affinity({}), [SMALL, LARGE], None),
        (
            affinity({}, {"matchExpressions": [expression("pool", "Exists")]}),
            [SMALL, LARGE], 24,
        ),
        ({}, [TAINTED, LARGE], 80),
        ({"tolerations": TEAM}, [TAINTED, LARGE], 16),
        ({"tolerations": [{"key": "team", "operator": "Exists"}]}, [TAINTED, LARGE], 16),
        ({"tolerations": [{"operator": "Exists"}]}, [TAINTED, LARGE], 16),
        ({"tolerations": [TEAM[0] | {"value": "b"}]}, [TAINTED, LARGE], 80),
        ({"tolerations": [TEAM[0] | {"effect": "NoExecute"}]}, [TAINTED, LARGE], 80),
        ({}, [node(16, taints=[{"key": GPU, "effect": "NoSchedule"}]), LARGE], 16),
        ({}, [node(16, taints=[{"key": "a", "effect": "PreferNoSchedule"}]), LARGE], 16),
        (
            {},
            [node(16, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}])],
            16,
        ),
        ({}, [node(0), LARGE], 80),
        ({}, [{**SMALL, "metadata": {"name": "x", "labels": {MEMORY_LABEL: "much"}}}], None),
    ],
)  # fmt: skip
def test_the_smallest_accelerator_that_the_pod_may_get_counts(
    pod: Object, nodes: list[Object], gib: int | None
) -> None:
    resources = pod_resources(accelerator=(GPU, 2))
    assert smallest_bytes(pod, resources, nodes) == (None if gib is None else gib * GIB)


def test_nothing_is_known_without_an_accelerator() -> None:
    assert smallest_bytes({}, pod_resources(), [SMALL]) is None


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("nvidia.com/mig-3g.40gb", 40),
        ("nvidia.com/mig-1g.5gb", 5),
        ("nvidia.com/mig-1g.10gb.me", 10),
        ("nvidia.com/mig-1c.3g.20gb", 20),
        (GPU, None),
        ("example.com/mig-3g.40gb", None),
    ],
)
def test_the_name_of_a_mig_slice_tells_its_memory(name: str, gib: int | None) -> None:
    assert mig_bytes(pod_resources(accelerator=(name, 1))) == (None if gib is None else gib * GIB)


@pytest.mark.parametrize(
    ("name", "expected"),
    [(GPU, True), ("nvidia.com/mig-3g.40gb", False), ("amd.com/gpu", False), (None, False)],
)
def test_labels_of_nodes_are_about_nvidias_whole_gpus(name: str | None, expected: bool) -> None:
    resources = pod_resources(accelerator=None if name is None else (name, 1))
    assert is_labelled(resources) == expected


def planned(spec: ServiceSpec, nodes: tuple[Object, ...] | None) -> Plan:
    """The plan that creates the preflight."""
    first = plan(spec, ObservedState(), "image", NOW_S)
    observed = ObservedState(rollout=first.rollout, nodes=nodes)
    state = plan(spec, observed, "image", NOW_S)
    while not state.create:
        assert isinstance(state.rollout, RolloutState)
        assert state.rollout != observed.rollout
        observed = replace(observed, rollout=state.rollout)
        state = plan(spec, observed, "image", NOW_S)
    return state


def told(made: Plan) -> str | None:
    (pod,) = made.create
    env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    return env.get(VARIABLE)


@pytest.mark.parametrize(
    ("name", "nodes", "needs_nodes", "expected"),
    [
        (GPU, None, True, None),
        (GPU, (), False, None),
        (GPU, (SMALL, LARGE), False, 24 * GIB),
        ("nvidia.com/mig-3g.40gb", None, False, 40 * GIB),
        ("amd.com/gpu", None, False, None),
        (None, None, False, None),
    ],
)
def test_the_preflight_is_told_the_memory_of_an_accelerator(
    name: str | None, nodes: Any, needs_nodes: bool, expected: int | None
) -> None:
    resources = pod_resources(accelerator=None if name is None else (name, 1))
    made = planned(service_spec(resources=resources), nodes)
    assert made.needs_nodes == needs_nodes
    assert told(made) == (None if expected is None else str(expected))


def test_a_variant_may_say_the_memory_of_its_accelerators() -> None:
    """Its own node selection counts otherwise."""
    variant = VariantSpec(
        "v", pod_resources(accelerator=(GPU, 1)), 1.0, 0, 9, node_selector={"pool": "large"}
    )
    spec = service_spec(variants=(variant,))
    assert told(planned(spec, (SMALL, LARGE))) == str(80 * GIB)
    known = replace(spec, variants=(replace(variant, accelerator_memory_bytes=48 * GIB),))
    made = planned(known, None)
    assert (told(made), made.needs_nodes) == (str(48 * GIB), False)


def test_the_recorded_pods_do_not_depend_on_nodes() -> None:
    """The variable is only in the preflight that is created, so that a revision's pods stay the same."""
    pods = own_pods(service_spec(resources=pod_resources(accelerator=(GPU, 1))), "r", "image")
    assert VARIABLE not in str(pods)
