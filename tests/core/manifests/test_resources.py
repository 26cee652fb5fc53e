"""The resources of engines: defaults, accelerators, and the flags and volumes that follow from them."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.specs.service_spec import pod_resources, service_spec

from penstock.core.manifests import engine
from penstock.core.spec.resources import ResourceSpec
from penstock.core.spec.service import Object, ServiceSpec, VariantSpec

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ({}, {}, ({"cpu": "1", "memory": "2Gi"}, {"cpu": "1", "memory": "2Gi"})),
        ({}, {"cpu": "4"}, ({"cpu": "4", "memory": "2Gi"}, {"cpu": "4", "memory": "2Gi"})),
        ({"cpu": "500m"}, {}, ({"cpu": "500m", "memory": "2Gi"}, {"memory": "2Gi"})),
        ({"memory": "1Gi"}, {"memory": "3Gi"}, ({"cpu": "1", "memory": "1Gi"}, None)),
    ],
)
def test_requests_follow_limits_and_cpu_and_memory_are_bounded(
    requests: dict[str, str], limits: dict[str, str], expected: tuple[Object, Object | None]
) -> None:
    made = ResourceSpec.of(requests, limits)
    assert made.requests == expected[0]
    assert made.limits == expected[1] or expected[1] is None


@pytest.mark.parametrize(
    ("requests", "limits", "memory_bytes", "threads"),
    [
        ({}, {}, 2**31, 1),
        ({"memory": "1Gi", "cpu": "2"}, {"memory": "3Gi", "cpu": "4500m"}, 3 * 2**30, 4),
        ({"memory": "1Gi", "cpu": "2"}, {}, 2**30, 2),
        ({}, {"cpu": "100m"}, 2**31, 1),
    ],
)
def test_what_the_engine_plans_with(
    requests: dict[str, str], limits: dict[str, str], memory_bytes: int, threads: int
) -> None:
    made = ResourceSpec.of(requests, limits)
    assert (made.memory_bytes, made.threads) == (memory_bytes, threads)


@pytest.mark.parametrize(
    ("limits", "claims", "accelerator", "device"),
    [
        ({}, (), None, "cpu"),
        ({GPU: "4"}, (), (GPU, 4), "cuda"),
        ({GPU: "0"}, (), None, "cpu"),
        ({"rdma/hca": "2", GPU: "8"}, (), (GPU, 8), "cuda"),
        ({"amd.com/gpu": "1"}, (), ("amd.com/gpu", 1), "cuda"),
        ({}, ("gpu",), None, "cuda"),
        ({"ephemeral-storage": "1Gi"}, (), None, "cpu"),
    ],
)
def test_the_accelerator(
    limits: dict[str, str],
    claims: tuple[str, ...],
    accelerator: tuple[str, int] | None,
    device: str,
) -> None:
    made = ResourceSpec.of({}, limits, claims)
    assert (made.accelerator, made.device) == (accelerator, device)


def with_gpus(count: int) -> ResourceSpec:
    return pod_resources(accelerator=(GPU, count)) if count else pod_resources()


def container(spec: ServiceSpec, variant: str = "") -> Object:
    pods = engine.own_pods(spec, "r1", "image")
    made = engine.deployment(spec.placed[variant], "r1", pods, variant=variant)
    found: Object = made["spec"]["template"]["spec"]
    return found


def flags(pod: Object) -> list[str]:
    names = ("--device=", "--tensor-parallel-size=")
    return [arg for arg in pod["containers"][0]["args"] if arg.startswith(names)]


def shared_memory(pod: Object) -> list[str]:
    return [
        mount["mountPath"]
        for mount in pod["containers"][0]["volumeMounts"]
        if mount["name"] in {v["name"] for v in pod["volumes"] if "medium" in v.get("emptyDir", {})}
    ]


@pytest.mark.parametrize(
    ("count", "expected", "shared"),
    [
        (0, ["--device=cpu"], []),
        (1, ["--device=cuda"], []),
        (4, ["--device=cuda", "--tensor-parallel-size=4"], ["/dev/shm"]),
    ],
)
def test_an_engine_is_tensor_parallel_over_its_accelerators(
    count: int, expected: list[str], shared: list[str]
) -> None:
    pod = container(service_spec(resources=with_gpus(count)))
    assert (flags(pod), shared_memory(pod)) == (expected, shared)
    limits = pod["containers"][0]["resources"]["limits"]
    assert limits.get(GPU) == (str(count) if count else None)


def shared_memory_sizes(pod: Object) -> list[str | None]:
    volumes = (volume.get("emptyDir", {}) for volume in pod["volumes"])
    return [each.get("sizeLimit") for each in volumes if each.get("medium") == "Memory"]


@pytest.mark.parametrize(
    ("own", "variants", "expected"),
    [(1, (), []), (4, (), ["4Gi"]), (1, (2, 8), ["8Gi"]), (4, (1,), []), (0, (0,), [])],
)
def test_shared_memory_has_a_gibibyte_for_each_accelerator(
    own: int, variants: tuple[int, ...], expected: list[str]
) -> None:
    """The variant with most accelerators decides: all variants of a revision have the same pods."""
    spec = service_spec(resources=with_gpus(own))
    named = tuple(VariantSpec(f"v{n}", with_gpus(n), 1.0, 0, 9) for n in variants)
    spec = replace(spec, variants=named)
    for variant in spec.placed:
        assert shared_memory_sizes(container(spec, variant)) == expected


def test_ranks_on_claimed_accelerators_share_memory() -> None:
    """A claim does not tell its number of accelerators, so the ranks of the spec count."""
    spec = service_spec(
        resources=replace(pod_resources(), claims=("gpus",)),
        settings={"engine.parallelism.tensor": 2, "engine.parallelism.pipeline": 2},
    )
    assert shared_memory_sizes(engine.own_pods(spec, "r", "image").serve["spec"]) == ["4Gi"]


def test_pods_of_an_earlier_version_keep_shared_memory_without_a_limit() -> None:
    """A limit would replace the running engines when the operator is upgraded."""
    spec = service_spec(variants=(VariantSpec("v", with_gpus(2), 1.0, 0, 9),))
    pods = engine.own_pods(replace(spec, variants=()), "r1", "image")  # without shared memory
    made = engine.deployment(spec.placed["v"], "r1", pods, variant="v")
    assert shared_memory_sizes(made["spec"]["template"]["spec"]) == [None]


@pytest.mark.parametrize(("own", "variant"), [(0, 1), (1, 0), (0, 0)])
def test_only_vllm_on_the_cpu_has_variables_for_its_threads(own: int, variant: int) -> None:
    spec = service_spec(
        settings={"runtime.type": "VLLM"},
        resources=with_gpus(own),
        variants=(VariantSpec("v", with_gpus(variant), 1.0, 0, 9),),
    )
    names = [each["name"] for each in container(spec, "v")["containers"][0]["env"]]
    for name in ("VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS"):
        assert names.count(name) == (0 if variant else 1)


def test_a_server_of_the_user_keeps_its_arguments_on_every_variant() -> None:
    args = ("serve", "--device=cuda", "--tensor-parallel-size=2")
    spec = service_spec(
        settings={
            "runtime.type": "Custom", "runtime.custom.image": "server", "runtime.custom.args": args
        },
        variants=(VariantSpec("v", with_gpus(2), 1.0, 0, 9),),
    )  # fmt: skip
    assert container(spec, "v")["containers"][0]["args"] == list(args)


@pytest.mark.parametrize("own", [0, 1, 2])
@pytest.mark.parametrize("variant", [0, 1, 8])
def test_a_variant_has_the_ranks_of_its_own_accelerators(own: int, variant: int) -> None:
    spec = service_spec(resources=with_gpus(own))
    placed = replace(spec, variants=(VariantSpec("v", with_gpus(variant), 1.0, 0, 9),))
    expected = service_spec(resources=with_gpus(variant))
    assert flags(container(placed, "v")) == flags(container(expected))
    assert container(placed, "v")["containers"][0]["resources"] == with_gpus(variant).manifest()


@pytest.mark.parametrize(
    "value", ["", 1, {"name": "data"}, ["data"], [{"name": [], "mountPath": []}]]
)
@pytest.mark.parametrize("field", ["volumes", "volumeMounts"])
def test_malformed_volumes_are_left_to_the_api_server(field: str, value: Any) -> None:
    """Volumes reach the API server with --allow-unrestricted-templates, and it refuses the pod."""
    mounted = [{"name": "engine", field: value}]
    pod = {"containers": mounted} if field == "volumeMounts" else {field: value}
    variants = tuple(VariantSpec(f"v{n}", with_gpus(n), 1.0, 0, 9) for n in (2, 4))
    made = container(service_spec(variants=variants, template={"spec": pod}), "v4")
    found = made["containers"][0] if field == "volumeMounts" else made
    assert found[field] == value


def test_claims_are_those_of_the_container() -> None:
    claims = ResourceSpec.of({}, {}, ("gpu",))
    assert container(service_spec(resources=claims))["containers"][0]["resources"]["claims"] == [
        {"name": "gpu"}
    ]
