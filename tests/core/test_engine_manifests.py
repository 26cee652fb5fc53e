"""Pods of engines and preflights, as their manifests render them."""

from dataclasses import replace

import pytest

from penstock.api.convert import to_core
from penstock.core.manifests import engine as manifests
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
