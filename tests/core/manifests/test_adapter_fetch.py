"""The pod that fetches an adapter, and the engines that read what it has fetched."""

from dataclasses import replace
from typing import Any

import pytest
from tests.core.reconcile.adapter_objects import SQL
from tests.support.specs.service_spec import service_spec

from penstock.core.manifests import engine as manifests
from penstock.core.manifests import restricted
from penstock.core.manifests.adapter_fetch import adapter_fetch_name, adapter_fetch_pod
from penstock.core.spec.service import SERVICE_LABEL, ServiceSpec

HUB = replace(SQL, version=replace(SQL.version, uri="hf://org/sql$1@v3"), secret="hub")
REVISION = HUB.version.revision
LORA = {"engine.lora.maxAdapters": 4}
SERVICE = replace(service_spec(), model_cache_claim="cache", model_cache_bytes=1000, settings=LORA)
CLAIM = {"persistentVolumeClaim": {"claimName": "cache"}}


def pod(spec: ServiceSpec = SERVICE, adapter: Any = HUB, kept: Any = (REVISION, "0000")) -> Any:
    return adapter_fetch_pod(adapter, adapter.version, adapter.version.uri, spec, kept, "engine:1")


def volumes(made: Any) -> dict[str, Any]:
    return {
        each["name"]: {k: v for k, v in each.items() if k != "name"} for each in made["volumes"]
    }


def mounts(container: Any) -> dict[str, tuple[str, bool]]:
    return {
        each["name"]: (each["mountPath"], each.get("readOnly", False))
        for each in container["volumeMounts"]
    }


def test_it_fetches_the_version_into_the_cache_and_removes_forgotten_ones() -> None:
    made = pod()
    (container,) = made["spec"]["containers"]
    assert container["command"] == ["penstock-engine"]
    assert container["image"] == "engine:1"
    assert container["args"] == [
        "fetch", "hf://org/sql$$1@v3", f"--into=/adapters/cache/adapters/sql/{REVISION}",
        "--credentials=/model-secret", "--cache=/adapters/cache", "--cache-limit-bytes=1000",
        f"--keep={REVISION}", "--keep=0000", "--termination-log=/dev/termination-log",
    ]  # fmt: skip
    assert mounts(container) == {
        "tmp": ("/tmp", False),
        "model-cache": ("/adapters/cache", False),
        "model-secret": ("/model-secret", True),
    }
    assert volumes(made["spec"])["model-cache"] == CLAIM
    assert volumes(made["spec"])["model-secret"] == {
        "secret": {"secretName": "hub", "defaultMode": 0o440}
    }
    without = pod(adapter=replace(HUB, secret=None))["spec"]
    assert "model-secret" not in volumes(without)
    assert not any("credentials" in arg for arg in without["containers"][0]["args"])


def test_it_runs_once_without_rights_as_a_child_of_the_adapter() -> None:
    made = pod()
    assert made["spec"]["restartPolicy"] == "Never"
    assert made["spec"]["automountServiceAccountToken"] is False
    assert made["spec"]["securityContext"]["fsGroup"] == 65532
    assert list(restricted.broken_rules(made["spec"], (), ())) == []
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("LoraAdapter", "sql", "1")
    labels = made["metadata"]["labels"]
    assert labels["serving.penstock.dev/role"] == "adapter-fetch"
    assert labels["serving.penstock.dev/adapter"] == "sql"
    assert SERVICE_LABEL not in labels, "it would be taken for a pod of the service"


def test_it_has_what_the_template_gives_penstocks_programs() -> None:
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    engine = {"name": "engine", "env": [proxy], "args": ["--no"], "resources": {"limits": {}}}
    extra = {"nodeSelector": {"zone": "a"}, "restartPolicy": "Always", "containers": [engine]}
    made = pod(replace(SERVICE, template={"spec": extra}))["spec"]
    (container,) = made["containers"]
    assert container["env"] == [proxy]
    assert container["args"][0] == "fetch"
    assert container["resources"]["limits"]["memory"] == "512Mi"
    assert made["nodeSelector"] == {"zone": "a"}
    assert made["restartPolicy"] == "Never"


def test_it_has_the_operators_variables_for_sources() -> None:
    variables = {"HF_ENDPOINT": "https://mirror/$a"}
    (container,) = pod(replace(SERVICE, source_variables=variables))["spec"]["containers"]
    assert container["env"] == [{"name": "HF_ENDPOINT", "value": "https://mirror/$$a"}]


def test_another_source_secret_or_claim_is_another_pod() -> None:
    name = adapter_fetch_name(HUB, HUB.version, "cache")
    assert name == pod()["metadata"]["name"]
    assert name.startswith("sql-fetch-")
    others = {
        adapter_fetch_name(HUB, replace(HUB.version, uri="hf://org/sql"), "cache"),
        adapter_fetch_name(replace(HUB, secret="other"), HUB.version, "cache"),
        adapter_fetch_name(HUB, HUB.version, "other"),
    }
    assert len(others | {name}) == 4


@pytest.mark.parametrize(
    ("uri", "paths"),
    [
        ("pvc://models/chat", ["/adapters/cache"]),
        ("hf://org/model", ["/adapters/cache", "/model-cache"]),
    ],
)
def test_engines_with_adapters_may_only_read_the_cache(uri: str, paths: list[str]) -> None:
    spec = replace(SERVICE, model_uri=uri)
    made = manifests.own_pods(spec, "r", "engine:1").serve["spec"]
    engine = made["containers"][0]
    assert [each for each in engine["volumeMounts"] if each["name"] == "model-cache"] == [
        {"name": "model-cache", "mountPath": path, "readOnly": True} for path in paths
    ]
    assert [each["name"] for each in made["volumes"]].count("model-cache") == 1
    assert volumes(made)["model-cache"] == CLAIM
    assert made["securityContext"]["fsGroup"] == 65532


def test_engines_without_adapters_or_a_cache_mount_none() -> None:
    for spec in (replace(SERVICE, settings={}), replace(SERVICE, model_cache_claim=None)):
        made = manifests.own_pods(spec, "r", "engine:1").serve["spec"]
        assert "model-cache" not in volumes(made)
        assert "fsGroup" not in made["securityContext"]
