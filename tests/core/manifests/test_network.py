"""The policy of engines selects the pods that the operator makes."""

from dataclasses import replace

import pytest

from penstock.api.conversion.convert import to_core
from penstock.core.manifests import engine as manifests
from penstock.core.manifests.evaluation import evaluation_job
from penstock.core.manifests.network import engines_policy, role_labels
from penstock.core.observed.label_selector import selects
from penstock.core.spec.revision import revision_of
from penstock.core.spec.rollout import EvaluationSpec
from penstock.core.spec.service import CONTROL, EVALUATION, SERVE

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
GATEWAYS = {"podSelector": {"matchLabels": {"app": "gateway"}}}


def test_the_policy_is_of_engines_and_admits_evaluation_jobs_of_the_namespace() -> None:
    own = manifests.own_pods(SPEC, REVISION, "image")
    engine = manifests.deployment(SPEC, REVISION, own, CONTROL)["spec"]["template"]
    job = evaluation_job(SPEC, EvaluationSpec(image="i"), REVISION, "s", "10.0.0.1")["spec"]
    engine_labels = engine["metadata"]["labels"]
    job_labels = job["template"]["metadata"]["labels"]
    policy = engines_policy("default", [], [GATEWAYS])["spec"]
    assert selects(policy["podSelector"], engine_labels)
    assert not selects(policy["podSelector"], job_labels)
    # A peer without a namespaceSelector is of the policy's own namespace.
    requests, events = policy["ingress"]
    assert [each["port"] for each in requests["ports"]] == [8000]
    (peer,) = requests["from"]
    assert [*peer] == ["podSelector"]
    assert selects(peer["podSelector"], job_labels)
    assert not selects(peer["podSelector"], engine_labels)
    assert [each["port"] for each in events["ports"]] == [5557, 5558]
    assert events["from"] == [GATEWAYS]


def test_pods_of_a_role_have_its_labels() -> None:
    for role in (SERVE, EVALUATION):
        labels = manifests.labels(SPEC, REVISION, role)
        assert role_labels(role).items() <= labels.items()


@pytest.mark.parametrize(
    ("mode", "ports"),
    [(None, [8000]), (False, [8000]), (True, [8000, 5557, 5558])],
)
def test_a_pod_has_the_ports_of_its_settings(mode: bool | None, ports: list[int]) -> None:
    settings = {} if mode is None else {"engine.kvCache.events.mode": mode}
    for runtime in ("Penstock", "VLLM"):
        spec = replace(SPEC, settings={**settings, "runtime.type": runtime})
        (container,) = manifests.own_pods(spec, REVISION, "image").serve["spec"]["containers"]
        assert [each["containerPort"] for each in container["ports"]] == ports
        assert any(arg.startswith("--kv-events-config=") for arg in container["args"]) is bool(mode)
