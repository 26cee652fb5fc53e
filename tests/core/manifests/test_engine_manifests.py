"""Pods of engines and preflights, as their manifests render them."""

from dataclasses import replace

import pytest

from penstock.api.conversion.convert import to_core
from penstock.core.manifests import engine as manifests
from penstock.core.manifests.placement import with_accelerator_memory
from penstock.core.spec.revision import revision_of
from penstock.core.spec.service import COHORT_LABEL, CONTROL

SPEC = to_core(
    {
        "metadata": {
            "namespace": "default", "name": "chat", "uid": "u", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"model": {"uri": "pvc://models/m"}},
    }
)  # fmt: skip
REVISION = revision_of(SPEC)


def test_labels_that_pods_are_known_by_outlast_the_users_template() -> None:
    theirs = {"app.kubernetes.io/managed-by": "Helm", COHORT_LABEL: "mine", "team": "a"}
    spec = replace(SPEC, template={"metadata": {"labels": theirs, "annotations": {"b": "c"}}})
    made = manifests.deployment(
        spec, REVISION, manifests.own_pods(spec, REVISION, "image"), CONTROL
    )["spec"]
    pod = made["template"]["metadata"]
    assert made["selector"]["matchLabels"].items() <= pod["labels"].items()
    assert (
        pod["labels"].items()
        >= (
            manifests.labels(spec, REVISION, "serve") | {COHORT_LABEL: CONTROL, "team": "a"}
        ).items()
    )
    assert pod["annotations"].items() >= {"b": "c"}.items()


def test_a_preflight_runs_once_whatever_the_template_says() -> None:
    """Deployments take only Always, with which a preflight would never end."""
    spec = replace(SPEC, template={"spec": {"restartPolicy": "Always"}})
    assert manifests.own_pods(spec, REVISION, "image").preflight["restartPolicy"] == "Never"


@pytest.mark.parametrize(("seed", "flags"), [(None, []), (0, ["--seed=0"]), (7, ["--seed=7"])])
def test_engines_share_a_seed_only_when_the_service_names_one(
    seed: int | None, flags: list[str]
) -> None:
    settings = {} if seed is None else {"engine.seed": seed}
    spec = replace(SPEC, settings=settings)
    (container,) = manifests.own_pods(spec, REVISION, "image").serve["spec"]["containers"]
    assert [arg for arg in container["args"] if arg.startswith("--seed")] == flags


def test_engines_report_cached_prompt_tokens_and_preflights_have_no_such_flag() -> None:
    """Canaries compare the prefix-hit rates of revisions, which they read from `usage`."""
    pods = manifests.own_pods(SPEC, REVISION, "image")
    args = [pod["containers"][0]["args"] for pod in (pods.serve["spec"], pods.preflight)]
    assert [flags.count("--enable-prompt-tokens-details") for flags in args] == [1, 0]


CACHE = {"name": "cache", "mountPath": "/cache"}
OWN_FILES = {
    "volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}],
    "containers": [
        {
            "name": "engine", "image": "mine", "env": [{"name": "TOKENIZER", "value": "/cache"}],
            "envFrom": [{"configMapRef": {"name": "settings"}}], "volumeMounts": [CACHE],
        },
        {"name": "side", "image": "side"},
    ],
}  # fmt: skip


def test_a_preflight_has_the_variables_and_files_that_arguments_may_name() -> None:
    settings = {"engine.extraArgs": ("--tokenizer=$(TOKENIZER)",)}
    spec = replace(SPEC, settings=settings, template={"spec": OWN_FILES})
    pods = manifests.own_pods(spec, REVISION, "image")
    (container,) = pods.preflight["containers"]
    assert container["image"] == "image"
    assert {"name": "TOKENIZER", "value": "/cache"} in container["env"]
    assert container["envFrom"] == [{"configMapRef": {"name": "settings"}}]
    assert CACHE in container["volumeMounts"]


def test_variables_of_other_programs_are_not_those_of_the_preflight() -> None:
    """An example is PYTHONPATH in the image of another runtime."""
    spec = replace(SPEC, settings={"runtime.type": "VLLM"}, template={"spec": OWN_FILES})
    (container,) = manifests.own_pods(spec, REVISION, "image").preflight["containers"]
    assert "envFrom" not in container
    assert CACHE not in container["volumeMounts"]


def test_a_preflight_does_not_ask_for_the_resources_of_an_engines_pod() -> None:
    spec = replace(SPEC, template={"spec": {"resources": {"requests": {"memory": "64Gi"}}}})
    pods = manifests.own_pods(spec, REVISION, "image")
    assert pods.serve["spec"]["resources"] == {"requests": {"memory": "64Gi"}}
    assert "resources" not in pods.preflight


def test_malformed_variables_are_left_to_the_api_server() -> None:
    spec = replace(SPEC, template={"spec": {"containers": [{"name": "engine", "env": 5}]}})
    pods = manifests.own_pods(spec, REVISION, "image")
    made = with_accelerator_memory(manifests.preflight(spec, REVISION, pods), 1 << 30)
    assert made["spec"]["containers"][0]["env"] == 5
