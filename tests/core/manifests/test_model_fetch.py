"""Parts of pods that fetch models from hubs, stores and registries."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.specs.service_spec import pod_resources, service_spec

from penstock.core.manifests import engine as manifests
from penstock.core.manifests.allowed_pods import PodLimits, Violation
from penstock.core.manifests.model_fetch import uris_of, with_resolved_uris
from penstock.core.observed.preflight import ResolvedModel
from penstock.core.spec.service import ServiceSpec, VariantSpec

URI = "hf://org/model@main"
DRAFT = "s3://bucket/draft$1/model.gguf"
RESOLVED = f"hf://org/model@{'a' * 40}"
SPEC = service_spec(model_uri=URI, resources=pod_resources("2", "4Gi", ("nvidia.com/gpu", 1)))


def serve(spec: ServiceSpec) -> Any:
    return manifests.own_pods(spec, "r", "engine:1").serve["spec"]


def preflight(spec: ServiceSpec) -> Any:
    return manifests.own_pods(spec, "r", "engine:1").preflight


def with_draft(spec: ServiceSpec = SPEC) -> ServiceSpec:
    return replace(spec, settings={"engine.speculative.model.uri": DRAFT})


def volumes(pod: Any) -> dict[str, Any]:
    return {
        each["name"]: {key: each[key] for key in each if key != "name"} for each in pod["volumes"]
    }


def mounts(container: Any) -> dict[str, tuple[str, bool]]:
    """Path and whether it is read-only, by the volume's name."""
    return {
        each["name"]: (each["mountPath"], each.get("readOnly", False))
        for each in container["volumeMounts"]
    }


def test_a_model_in_a_claim_is_not_fetched() -> None:
    assert "initContainers" not in serve(service_spec())
    assert not any("--headers" in arg for arg in preflight(service_spec())["containers"][0]["args"])


def test_an_engine_reads_what_an_init_container_has_fetched() -> None:
    pod = serve(SPEC)
    (fetch,), (engine,) = pod["initContainers"], pod["containers"]
    assert (fetch["name"], fetch["image"], fetch["command"]) == (
        "fetch-model", "engine:1", ["penstock-engine"],
    )  # fmt: skip
    assert fetch["args"] == [
        "fetch", URI, "--into=/models", "--deadline-seconds=3600", "--host=$(POD_IP)", "--port=8000",
        "--termination-log=/dev/termination-log",
    ]  # fmt: skip
    assert volumes(pod)["model"] == {"emptyDir": {}}
    assert mounts(fetch) == {"tmp": ("/tmp", False), "model": ("/models", False)}
    assert mounts(engine)["model"] == ("/models", True)
    assert engine["args"][:2] == ["serve", "/models"]


def test_a_fetch_adds_nothing_to_the_resources_of_the_pod() -> None:
    """Kubernetes takes the larger of an init container's and the sum of the others'."""
    (fetch,) = serve(SPEC)["initContainers"]
    assert fetch["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi"},
        "limits": {"cpu": "2", "memory": "4Gi"},
    }


def test_the_fetch_has_the_cpu_and_memory_of_its_variant() -> None:
    variant = VariantSpec("small", pod_resources("1", "3Gi"), 1.0, 0, 2)
    pods = manifests.own_pods(replace(SPEC, variants=(variant,)), "r", "engine:1")
    resolved = ResolvedModel(URI, RESOLVED, 1000)
    pods = replace(pods, serve=with_resolved_uris(pods.serve, {URI: resolved}))
    placed = replace(SPEC, variants=(variant,)).placed["small"]
    made = manifests.deployment(placed, "r", pods, variant="small")["spec"]["template"]["spec"]
    assert made["initContainers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "3Gi", "ephemeral-storage": "1050"},
        "limits": {"cpu": "1", "memory": "3Gi"},
    }


def test_a_gguf_file_is_served_by_its_own_path_and_dollars_are_not_expanded() -> None:
    pod = serve(with_draft())
    _, draft = pod["initContainers"]
    assert draft["args"][1] == "s3://bucket/draft$$1/model.gguf"
    assert uris_of({"spec": pod}) == {"fetch-model": URI, "fetch-draft-model": DRAFT}
    assert '"model": "/draft/model.gguf"' in " ".join(pod["containers"][0]["args"])
    assert mounts(pod["containers"][0])["draft-model"] == ("/draft", True)


def test_a_preflight_reads_headers_of_all_models() -> None:
    pod = preflight(replace(with_draft(), model_secret="token"))
    (checker,) = pod["containers"]
    assert checker["args"][:7] == [
        "preflight", "/models", "--termination-log", "/dev/termination-log",
        f"--headers=/models={URI}", "--headers=/draft=s3://bucket/draft$$1/model.gguf",
        "--credentials=/model-secret",
    ]  # fmt: skip
    assert mounts(checker)["model"] == ("/models", False)
    assert mounts(checker)["draft-model"] == ("/draft", False)
    assert mounts(checker)["model-secret"] == ("/model-secret", True)
    assert "initContainers" not in pod


def test_only_containers_that_fetch_see_the_credentials() -> None:
    pod = serve(replace(with_draft(), model_secret="token", model_cache_claim="cache"))
    for each in pod["initContainers"]:
        assert mounts(each)["model-secret"] == ("/model-secret", True)
        assert "--credentials=/model-secret" in each["args"]
    assert volumes(pod)["model-secret"] == {"secret": {"secretName": "token", "defaultMode": 0o440}}
    assert not any("model-secret" in mounts(each) for each in pod["containers"])


def test_a_cache_is_written_by_fetches_and_held_while_the_pod_lives() -> None:
    spec = replace(with_draft(), model_cache_claim="cache", model_cache_bytes=1 << 40)
    pod = serve(spec)
    engine, holder = pod["containers"]
    for each in pod["initContainers"]:
        flags = {"--cache=/model-cache", f"--cache-limit-bytes={1 << 40}", "--hold-seconds=1800"}
        assert flags <= set(each["args"])
        assert mounts(each)["model-cache"] == ("/model-cache", False)
    assert mounts(engine)["model-cache"] == ("/model-cache", True)
    assert (holder["name"], holder["args"]) == (
        "hold-model", ["hold", "/models", "/draft", "--cache=/model-cache"],
    )  # fmt: skip
    assert mounts(holder) == {
        "model": ("/models", True), "draft-model": ("/draft", True), "model-cache": ("/model-cache", False),
    }  # fmt: skip
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"]


NODE_CACHE = "/var/lib/penstock/models"


def with_node_cache(**changes: Any) -> ServiceSpec:
    return replace(with_draft(), model_cache_type="Node", node_cache_path=NODE_CACHE, **changes)


def test_the_cache_of_a_node_is_only_read() -> None:
    """Its server writes, which pods ask over a socket in the folder."""
    pod = serve(with_node_cache())
    engine, holder = pod["containers"]
    assert volumes(pod)["model-cache"] == {
        "hostPath": {"path": NODE_CACHE, "type": "DirectoryOrCreate"}
    }
    for each in pod["initContainers"]:
        assert {"--node-cache=/model-cache", "--hold-seconds=1800"} <= set(each["args"])
        assert not any(arg.startswith("--cache") for arg in each["args"])
    assert holder["args"] == ["hold", "/models", "/draft", "--node-cache=/model-cache"]
    for each in (*pod["initContainers"], engine, holder):
        assert mounts(each)["model-cache"] == ("/model-cache", True)
    assert "fsGroup" not in pod["securityContext"]
    assert "model-cache" not in volumes(preflight(with_node_cache()))


def test_pods_fetch_for_themselves_where_nodes_have_no_cache() -> None:
    """Pods of a running service go on to fetch after the cache of nodes was disabled."""
    assert serve(replace(with_draft(), model_cache_type="Node")) == serve(with_draft())
    assert serve(replace(with_draft(), node_cache_path=NODE_CACHE)) == serve(with_draft())


def test_a_cache_of_nodes_has_to_be_enabled() -> None:
    refused = PodLimits().violation(with_node_cache())
    assert refused is not None
    assert refused.reason == "NodeCacheNotEnabled"
    assert "chart value nodeCache.enabled" in refused.message
    unrestricted = PodLimits(allow_unrestricted_templates=True)
    assert unrestricted.violation(with_node_cache()) == refused
    enabled = PodLimits(node_cache_path=NODE_CACHE)
    assert enabled.violation(replace(with_node_cache(), node_cache_path=None)) is None


def test_the_folder_of_a_nodes_cache_is_no_source() -> None:
    spec = with_node_cache(model_uri=f"file://{NODE_CACHE}/blobs")
    refused = PodLimits(node_cache_path=NODE_CACHE).violation(spec)
    assert refused is not None
    assert refused.reason == "HostPathNotAllowed"


def test_a_template_may_only_read_the_cache_of_a_node() -> None:
    def violation(**mount: Any) -> Violation | None:
        cache = {"name": "model-cache", "mountPath": "/cache", **mount}
        side = {"name": "side", "image": "mine", "volumeMounts": [cache]}
        spec = with_node_cache(template={"spec": {"containers": [side]}})
        return PodLimits(node_cache_path=NODE_CACHE).violation(spec)

    refused = violation()
    assert refused is not None
    assert refused.reason == "TemplateNotAllowed"
    assert refused.message.startswith(
        "spec.template.spec.containers[side].volumeMounts[] must set readOnly"
    )
    assert violation(readOnly=True) is None


def test_a_revision_fetches_what_its_preflight_has_found() -> None:
    pods = manifests.own_pods(with_draft(), "r", "engine:1")
    found = with_resolved_uris(pods.serve, {URI: ResolvedModel(URI, RESOLVED, 20_000_000_000)})
    model, draft = found["spec"]["initContainers"]
    assert (model["args"][1], draft["args"][1]) == (RESOLVED, DRAFT.replace("$", "$$"))
    assert model["resources"]["requests"]["ephemeral-storage"] == "21000000000"
    assert "ephemeral-storage" not in draft["resources"]["requests"]
    moved = ResolvedModel(URI, f"hf://org/model@{'b' * 40}", 1)
    assert with_resolved_uris(found, {URI: moved}) == found  # once in a rollout
    assert uris_of(pods.serve)["fetch-model"] == URI  # the argument is not changed


@pytest.mark.parametrize(
    "cache",
    [{"model_cache_claim": "cache"}, {"model_cache_type": "Node", "node_cache_path": NODE_CACHE}],
)
def test_a_model_in_a_cache_takes_no_room_of_the_pod(cache: dict[str, Any]) -> None:
    pods = manifests.own_pods(replace(SPEC, **cache), "r", "engine:1")
    found = with_resolved_uris(pods.serve, {URI: ResolvedModel(URI, RESOLVED, 1000)})
    assert "ephemeral-storage" not in found["spec"]["initContainers"][0]["resources"]["requests"]


VARIABLES = [{"name": "HTTPS_PROXY", "value": "http://proxy"}]
FILES = {"name": "certificates", "mountPath": "/certificates"}
TEMPLATE = {
    "spec": {
        "volumes": [{"name": "certificates", "configMap": {"name": "certificates"}}],
        "containers": [{"name": "engine", "env": VARIABLES, "volumeMounts": [FILES]}],
    }
}


def test_variables_and_volumes_of_the_engine_are_those_of_the_fetch() -> None:
    (fetch,) = serve(replace(SPEC, template=TEMPLATE))["initContainers"]
    assert VARIABLES[0] in fetch["env"]
    assert FILES in fetch["volumeMounts"]
    assert fetch["name"] == "fetch-model"


@pytest.mark.parametrize("kind", ["VLLM", "Custom"])
def test_variables_of_other_programs_are_not_those_of_the_fetch(kind: str) -> None:
    settings = {"runtime.type": kind, "runtime.custom.image": "mine"}
    pod = serve(replace(SPEC, settings=settings, template=TEMPLATE))
    (fetch,) = pod["initContainers"]
    assert fetch["image"] == "engine:1"
    assert VARIABLES[0] not in fetch["env"]
    assert pod["containers"][0]["image"] != "engine:1"


def test_pods_that_fetch_meet_the_restricted_standard() -> None:
    spec = replace(with_draft(), model_secret="token", model_cache_claim="cache")
    assert PodLimits().violation(spec) is None


def test_a_users_init_container_is_refused_beside_ours() -> None:
    """The credentials are mounted in these containers."""
    mine = {"spec": {"initContainers": [{"name": "fetch-model", "image": "mine"}]}}
    violation = PodLimits().violation(replace(SPEC, template=mine))
    assert violation is not None
    assert "initContainers" in violation.message


def test_variables_of_the_operator_are_those_of_what_fetches_alone() -> None:
    mirror = {"HF_ENDPOINT": "https://mirror/$(X)"}
    spec = replace(SPEC, source_variables=mirror)
    variable = {"name": "HF_ENDPOINT", "value": "https://mirror/$$(X)"}
    pod = serve(spec)
    assert variable in pod["initContainers"][0]["env"]
    assert variable in preflight(spec)["containers"][0]["env"]
    assert variable not in pod["containers"][0]["env"]
    mounted = service_spec(source_variables=mirror)
    assert variable not in preflight(mounted)["containers"][0]["env"]


def test_an_archive_needs_room_beside_what_is_unpacked() -> None:
    pods = manifests.own_pods(SPEC, "r", "engine:1")
    found = with_resolved_uris(
        pods.serve, {URI: ResolvedModel(URI, RESOLVED, 1000, is_archive=True)}
    )
    requests = found["spec"]["initContainers"][0]["resources"]["requests"]
    assert requests["ephemeral-storage"] == "2500"
