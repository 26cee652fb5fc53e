"""Sources of adapters: which URIs lie in them, and how engine pods mount them."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.specs.service_spec import service_spec

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.manifests.allowed_pods import PodLimits
from penstock.core.manifests.engine_pod import preflight_pod, serve_pod
from penstock.core.reconcile.conditions import explain_forbidden
from penstock.core.runtimes.refusals import refused_settings
from penstock.core.spec.adapter_sources import adapter_sources, is_in_sources
from penstock.core.spec.service import ServiceSpec

LIMITS = {"engine.lora.maxAdapters": 4}


def spec(model_uri: str = "pvc://models/chat", *sources: str, **settings: Any) -> ServiceSpec:
    written = {"engine.lora.sources": sources} if sources else {}
    return replace(service_spec(), model_uri=model_uri, settings=LIMITS | written | settings)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (spec(), ("pvc://models",)),
        (spec("file:///models/chat"), ("file:///models/chat",)),
        (spec("file:///models/a:b"), ()),
        (spec("pvc://models/chat", "pvc://adapters"), ("pvc://adapters",)),
        (spec("pvc://m", "file:///b/a", "pvc://z", "file:///b"), ("file:///b", "pvc://z")),
        (spec("pvc://m", "file:///a", "file:////a/"), ("file:////a/",)),
        (replace(spec(), settings={}), ()),
    ],
)
def test_sources(made: ServiceSpec, expected: tuple[str, ...]) -> None:
    assert adapter_sources(made) == expected


@pytest.mark.parametrize(
    ("uri", "is_in"),
    [
        ("pvc://adapters/sql/v3", True),
        ("pvc://adapters", True),
        ("pvc://adapter/sql", False),
        ("file:///data/loras/sql", True),
        ("file:////data//loras/./sql", True),
        ("file:///data/loras", True),
        ("file:///data/loras2/sql", False),
        ("file:///data", False),
        ("file:///data/loras/../sql", False),
    ],
)
def test_adapters_lie_in_sources(uri: str, is_in: bool) -> None:
    assert is_in_sources(uri, ("pvc://adapters", "file:///data/loras")) is is_in


def mounts(made: ServiceSpec) -> dict[str, dict[str, Any]]:
    """Volume source by mount path, of the mounts below /adapters."""
    pod = serve_pod(made, "image")
    volumes = {volume.pop("name"): volume for volume in pod["volumes"]}
    found = {}
    for mount in pod["containers"][0]["volumeMounts"]:
        if mount["mountPath"].startswith("/adapters"):
            assert mount["readOnly"] is True
            found[mount["mountPath"]] = volumes[mount["name"]]
    return found


def claim(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name, "readOnly": True}}


def folder(path: str) -> dict[str, Any]:
    return {"hostPath": {"path": path, "type": "Directory"}}


def test_engine_pods_mount_the_sources_where_versions_look_for_them() -> None:
    made = spec("pvc://models/chat", "pvc://adapters", "file:///data//loras/")
    assert mounts(made) == {
        "/adapters/pvc/adapters": claim("adapters"),
        "/adapters/file/data/loras": folder("/data//loras/"),
    }
    for uri in ("pvc://adapters/sql", "file:///data/loras/sql"):
        assert any(AdapterVersion("sql", uri).engine_path.startswith(path) for path in mounts(made))


@pytest.mark.parametrize("sources", [(), ("pvc://models", "pvc://adapters")])
def test_a_claim_of_the_model_is_one_volume_with_two_mounts(sources: tuple[str, ...]) -> None:
    pod = serve_pod(spec("pvc://models/chat", *sources), "image")
    assert [v for v in pod["volumes"] if claim("models").items() <= v.items()] == [
        {"name": "model", **claim("models")}
    ]
    assert mounts(spec("pvc://models/chat", *sources))["/adapters/pvc/models"] == claim("models")


def test_pods_without_adapters_and_preflights_mount_none() -> None:
    assert mounts(replace(spec(), settings={})) == {}
    pod = preflight_pod(spec("pvc://models", "pvc://adapters"), "image")
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp", "model"]
    assert not any("lora-dir" in arg for arg in pod["containers"][0]["args"])


def test_vllm_gets_the_same_mounts_and_custom_servers_none() -> None:
    vllm = spec("pvc://models", "pvc://adapters", **{"runtime.type": "VLLM"})
    assert list(mounts(vllm)) == ["/adapters/pvc/adapters"]
    assert list(refused_settings(vllm)) == []
    custom = spec(
        "pvc://m", "pvc://a", **{"runtime.type": "Custom", "runtime.custom.image": "server"}
    )
    assert any(
        "spec.engine.lora.sources has no effect" in each for each in refused_settings(custom)
    )


def test_folders_of_the_node_have_to_be_allowed() -> None:
    made = spec("pvc://models", "pvc://adapters", "file:///data/loras")
    refused = PodLimits(allowed_host_paths=("/models",)).violation(made)
    assert refused is not None
    assert refused.reason == "HostPathNotAllowed"
    assert "spec.engine.lora.sources[1]" in refused.message
    assert PodLimits(allowed_host_paths=("/data",)).violation(made) is None


def test_a_template_must_not_mount_adapters_writable() -> None:
    mount = {"name": "adapters-0", "mountPath": "/here"}
    containers = [{"name": "engine", "volumeMounts": [mount]}]
    made = replace(
        spec("pvc://models", "pvc://adapters"), template={"spec": {"containers": containers}}
    )
    refused = PodLimits().violation(made)
    assert refused is not None
    assert "readOnly" in refused.message


def test_a_forbidden_pod_names_the_folder_of_the_node() -> None:
    _, text = explain_forbidden(spec("pvc://models", "file:///data"), "no hostPath volumes")
    assert "spec.engine.lora.sources[0]" in text
