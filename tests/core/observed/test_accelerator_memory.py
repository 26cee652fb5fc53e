"""Tests of the memory of accelerators: by resource name, by the nodes that may run a pod, or unknown."""

from dataclasses import replace

import pytest
from tests.support.specs.service_spec import pod_resources, service_spec

from penstock.core.manifests.engine import own_pods
from penstock.core.observed.accelerator_memory import (
    MEMORY_LABEL,
    claimed_bytes,
    mig_bytes,
    smallest_bytes,
    source_of,
)
from penstock.core.observed.children import ObservedState
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.reconcile.plan import Plan, plan
from penstock.core.spec.resources import ResourceSpec
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
        # The schema does not check these, and the API server refuses the pod.
        ({"affinity": "x"}, [LARGE], None),
        (
            {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
            [LARGE], None,
        ),
        (affinity({"matchExpressions": [{"key": "pool", "operator": "Gt"}]}), [LARGE], None),
        ({"nodeSelector": "x"}, [LARGE], None),
        ({"tolerations": [None]}, [TAINTED], None),
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


def device_slice(*sizes: str, driver: str = "gpu.nvidia.com") -> Object:
    devices = [
        {"name": f"gpu-{i}", "capacity": {"memory": {"value": size}}}
        for i, size in enumerate(sizes)
    ]
    return {"spec": {"driver": driver, "devices": devices}}


@pytest.mark.parametrize(
    ("slices", "gib"),
    [
        ([], None),
        ([{"spec": {"driver": "gpu.nvidia.com"}}], None),
        ([device_slice("24Gi"), device_slice("80Gi", "40Gi")], 80),
        ([device_slice("24Gi"), device_slice("80Gi", driver="dra.example")], 24),
        ([{"spec": {"driver": "gpu.nvidia.com", "devices": [{"name": "gpu-0"}]}}], None),
    ],
)
def test_a_claim_gets_no_larger_gpu_than_there_is(slices: list[Object], gib: int | None) -> None:
    assert claimed_bytes(slices) == (None if gib is None else gib * GIB)


@pytest.mark.parametrize(
    ("name", "claims", "expected"),
    [
        (GPU, (), "nodes"),
        (GPU, ("nic",), "nodes"),
        ("nvidia.com/mig-3g.40gb", (), None),
        ("amd.com/gpu", (), None),
        (None, ("gpu",), "resourceslices"),
        (None, (), None),
    ],
)
def test_what_says_the_memory_of_an_accelerator(
    name: str | None, claims: tuple[str, ...], expected: str | None
) -> None:
    resources = pod_resources(accelerator=None if name is None else (name, 1))
    assert source_of(replace(resources, claims=claims)) == expected


def planned(spec: ServiceSpec, devices: tuple[Object, ...] | None) -> Plan:
    """The plan that creates the preflight. devices: of the kind that it needs; None: not read."""
    first = plan(spec, ObservedState(), "image", NOW_S)
    source = source_of(next(iter(spec.placed.values())).resources)
    read = {} if source is None or devices is None else {source: devices}
    observed = ObservedState(rollout=first.rollout, devices=read)
    state = plan(spec, observed, "image", NOW_S)
    while not state.create:
        assert isinstance(state.rollout, RolloutState)
        assert state.rollout != observed.rollout
        observed = replace(observed, rollout=state.rollout)
        state = plan(spec, observed, "image", NOW_S)
    return state


def memory_variable(made: Plan) -> str | None:
    """The value of the preflight's variable with the memory; None if it has none."""
    (pod,) = made.create
    env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    return env.get(VARIABLE)


SLICES = (device_slice("80Gi"),)
CLAIMED = replace(pod_resources(), claims=("gpu",))


@pytest.mark.parametrize(
    ("resources", "devices", "unread", "expected"),
    [
        (pod_resources(accelerator=(GPU, 1)), None, "nodes", None),
        (pod_resources(accelerator=(GPU, 1)), (), None, None),
        (pod_resources(accelerator=(GPU, 1)), (SMALL, LARGE), None, 24 * GIB),
        (pod_resources(accelerator=("nvidia.com/mig-3g.40gb", 1)), None, None, 40 * GIB),
        (pod_resources(accelerator=("amd.com/gpu", 1)), None, None, None),
        (CLAIMED, None, "resourceslices", None),
        (CLAIMED, SLICES, None, 80 * GIB),
        (pod_resources(), None, None, None),
    ],
)
def test_the_preflight_is_told_the_memory_of_an_accelerator(
    resources: ResourceSpec,
    devices: tuple[Object, ...] | None,
    unread: str | None,
    expected: int | None,
) -> None:
    made = planned(service_spec(resources=resources), devices)
    assert made.unread == ({unread} if unread else set())
    assert memory_variable(made) == (None if expected is None else str(expected))


def test_the_preflight_of_another_runtime_checks_no_memory() -> None:
    spec = service_spec(
        resources=pod_resources(accelerator=(GPU, 1)), settings={"runtime.type": "VLLM"}
    )
    made = planned(spec, None)
    assert (made.unread, memory_variable(made)) == (frozenset(), None)


def test_the_preflight_takes_no_accelerator() -> None:
    """Neither by its resources nor by a claim of the pod."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    spec = service_spec(resources=CLAIMED, template={"spec": {"resourceClaims": claims}})
    pods = own_pods(spec, "r", "image")
    assert pods.serve["spec"]["resourceClaims"] == claims
    assert "resourceClaims" not in pods.preflight
    assert "claims" not in pods.preflight["containers"][0]["resources"]


def test_a_variant_may_say_the_memory_of_its_accelerators() -> None:
    """The variant's acceleratorMemory counts, else the labels of nodes that its node selector admits."""
    variant = VariantSpec(
        "v", pod_resources(accelerator=(GPU, 1)), 1.0, 0, 9, node_selector={"pool": "large"}
    )
    spec = service_spec(variants=(variant,))
    assert memory_variable(planned(spec, (SMALL, LARGE))) == str(80 * GIB)
    known = replace(spec, variants=(replace(variant, accelerator_memory_bytes=48 * GIB),))
    made = planned(known, None)
    assert (memory_variable(made), made.unread) == (str(48 * GIB), frozenset())


def test_the_recorded_pods_do_not_depend_on_nodes() -> None:
    """The variable is only in the preflight that is created, so that a revision's pods stay the same."""
    pods = own_pods(service_spec(resources=pod_resources(accelerator=(GPU, 1))), "r", "image")
    assert VARIABLE not in str(pods)
