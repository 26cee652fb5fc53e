"""Limits on `spec.template`: no template that passes makes a pod with more rights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.specs.random_templates import LIKELY_OVERRIDES, OVERRIDES
from tests.support.specs.service_spec import service_spec
from tests.support.specs.template_overrides import ALLOWED, REFUSED, engine, side

from penstock.api.conversion.convert import InvalidService, to_core
from penstock.core.manifests import allowed_pods
from penstock.core.manifests.allowed_pods import PodLimits, Violation
from penstock.core.manifests.engine import deployment, own_pods, preflight
from penstock.core.manifests.evaluation import evaluation_job
from penstock.core.spec.model_location import host_path_violation
from penstock.core.spec.rollout import EvaluationSpec, Variable
from penstock.core.spec.template_limits import (
    ACCOUNT_REFUSED,
    CONTAINER,
    POD,
    VOLUME,
    template_violation,
)

Pod = dict[str, Any]
ROOT = Path(__file__).parents[3]
# Refused overrides that are refused without limits too, as no pod can be made with them.
WITHOUT_A_POD = (
    "pod replaced", "containers replaced", "security context replaced", "containers as text",
    "a container as text", "a container without a name", "volumes as a map",
)  # fmt: skip


@pytest.mark.parametrize(("name", "override", "path"), REFUSED, ids=[each[0] for each in REFUSED])
def test_an_override_that_would_give_rights_is_refused_by_its_path(
    name: str, override: Pod, path: str
) -> None:
    spec = service_spec(template={"spec": override})
    violation = PodLimits().violation(spec)
    assert violation is not None
    assert violation.reason == "TemplateNotAllowed"
    assert violation.message.startswith(path)
    unlimited = PodLimits(allow_unrestricted_templates=True).violation(spec)
    assert (unlimited is not None) == (name in WITHOUT_A_POD)


@pytest.mark.parametrize("override", ALLOWED.values(), ids=ALLOWED)
def test_an_override_without_further_rights_is_allowed(override: Pod) -> None:
    spec = service_spec(template={"spec": override})
    assert PodLimits().violation(spec) is None
    for pod in pods(spec):
        assert_restricted(pod)


def test_the_page_lists_all_that_is_allowed() -> None:
    page = (ROOT / "docs" / "concepts" / "security.md").read_text()
    for limit in (POD, CONTAINER, VOLUME):
        for name in limit.fields.keys() - {"name"}:
            is_probe = name.endswith("Probe")
            assert f"`{name}" in page or (is_probe and "probes and `lifecycle`" in page), name


def test_annotations() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/engine"
    template: Pod = {"metadata": {"annotations": {key: "unconfined"}}}
    sentence = template_violation(template)
    assert sentence is not None
    assert sentence.startswith("spec.template.metadata.annotations must not choose AppArmor")
    assert template_violation({"metadata": {"annotations": {"team": "search"}}}) is None


@pytest.mark.parametrize(
    ("uri", "allowed", "is_allowed"),
    [
        ("pvc://models/tiny", (), True),
        ("file:///models/tiny", (), False),
        ("file:///models/tiny", ("/models",), True),
        ("file:///models/tiny", ("/data", "/models/"), True),
        ("file:///models", ("/models",), True),
        ("file:////models//./tiny", ("/models",), True),
        ("file:///modelsx/tiny", ("/models",), False),
        ("file:///", ("/models",), False),
        ("file:///models/../etc", ("/models",), False),
        ("file:///etc", ("/",), True),
        ("file:///etc", ("", "etc"), False),
    ],
)
def test_folders_of_nodes(uri: str, allowed: tuple[str, ...], is_allowed: bool) -> None:
    sentence = host_path_violation("spec.model.uri", uri, allowed)
    assert (sentence is None) == is_allowed
    violation = PodLimits(allowed_host_paths=allowed).violation(service_spec(model_uri=uri))
    expected = None if sentence is None else Violation("HostPathNotAllowed", sentence)
    assert violation == expected
    draft = {"engine.speculative.model.uri": uri}
    about_draft = PodLimits(allowed_host_paths=allowed).violation(service_spec(settings=draft))
    assert (about_draft is None) == is_allowed
    if sentence is not None and about_draft is not None:
        assert "spec.engine.speculative.model.uri" in about_draft.message
        assert "--allowed-host-path" in sentence
        assert "operator.allowedHostPaths" in sentence


@pytest.mark.parametrize(
    ("name", "allowed", "is_allowed"),
    [
        ("reader", (), False),
        ("reader", ("reader",), True),
        ("reader", ("default/reader",), True),
        ("reader", ("other/reader", "writer"), False),
        ("default/reader", ("default/reader",), False),
        ("", ("reader",), False),
        (None, ("reader",), False),
        (["reader"], ("reader",), False),
    ],
)
def test_service_accounts(name: Any, allowed: tuple[str, ...], is_allowed: bool) -> None:
    spec = service_spec(template={"spec": {"serviceAccountName": name}})
    violation = PodLimits(allowed_service_accounts=allowed).violation(spec)
    if not is_allowed:
        assert violation == Violation("TemplateNotAllowed", ACCOUNT_REFUSED)
        return
    assert violation is None
    for pod in pods(spec):
        assert pod["serviceAccountName"] == "reader"
        assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    "override",
    [
        {"serviceAccountName": "admin"},
        {"securityContext": None},
        {"hostNetwork": True},
        {"automountServiceAccountToken": True},
        {"volumes": [{"name": "data", "hostPath": {"path": "/"}}]},
        engine(securityContext=None),
        engine(volumeMounts=[{"mountPath": "/models", "readOnly": False}]),
        engine(ports=[{"containerPort": 9000, "hostPort": 9000}]),
        side(securityContext={"privileged": True}),
    ],
)
def test_the_made_pods_are_checked_too(override: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second check finds what the first one would let pass."""
    monkeypatch.setattr(allowed_pods, "template_violation", lambda *_: None)
    limits = PodLimits(allowed_host_paths=("/models",))
    spec = service_spec(template={"spec": override}, model_uri="file:///models/tiny")
    violation = limits.violation(spec)
    assert violation is not None
    assert violation.message.startswith("spec.template.spec makes pods whose ")
    assert limits.violation(service_spec(model_uri="file:///models/tiny")) is None


def test_an_added_container_gets_no_rights_that_it_does_not_ask_for() -> None:
    def context(override: Pod) -> Any:
        serve, *_ = pods(service_spec(template={"spec": override}))
        return serve["containers"][1]["securityContext"]

    unprivileged = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert context(side()) == unprivileged
    assert context(side(securityContext={"runAsUser": 9})) == unprivileged | {"runAsUser": 9}
    assert context(side(securityContext={"privileged": True})) == {"privileged": True}


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(OVERRIDES | LIKELY_OVERRIDES, st.sampled_from(["pvc://models/a", "file:///models/a"]))
@example({"containers": [{"name": "side"}, {"name": "side", "image": "x"}]}, "pvc://models/a")
def test_no_allowed_template_makes_a_pod_beyond_the_restricted_standard(
    override: Pod, uri: str
) -> None:
    try:
        spec = service(override, uri)
    except InvalidService:
        return
    limits = PodLimits(allowed_host_paths=("/models",))
    violation = limits.violation(spec)
    without_limits = replace(limits, allow_unrestricted_templates=True).violation(spec)
    # The check of the rights of the made pods finds nothing more.
    refused = template_violation(spec.template) or without_limits
    assert (violation is None) == (refused is None)
    if violation is not None:
        return
    for pod in pods(spec):
        assert_restricted(pod, "/models/a" if uri.startswith("file") else None)


def test_an_evaluation_job_is_within_the_restricted_standard() -> None:
    variable = Variable(name="KEY", secret=("keys", "a"))
    wanted = EvaluationSpec(image="tests:1", command=("run",), args=("all",), env=(variable,))
    job = evaluation_job(service_spec(), wanted, "new", "old", "10.0.0.1")
    assert_restricted(job["spec"]["template"]["spec"])


def service(override: Pod, uri: str) -> Any:
    metadata = {
        "namespace": "default", "name": "chat", "uid": "u", "generation": 1, "creationTimestamp": "",
    }  # fmt: skip
    return to_core(
        {
            "metadata": metadata,
            "spec": {
                "model": {"uri": uri},
                "resources": {"limits": {"memory": "2Gi"}},
                "template": {"spec": override},
            },
        }
    )


def pods(spec: Any) -> list[Pod]:
    """Return the pod specs of engine and preflight, each without and with a variant."""
    made = own_pods(spec, "r", "image")
    return [
        pod
        for variant in ("", "v")
        for pod in (
            deployment(spec, "r", made, variant=variant)["spec"]["template"]["spec"],
            preflight(spec, "r", made, variant)["spec"],
        )
    ]


def assert_restricted(pod: Pod, folder: str | None = None) -> None:
    """Assert what the restricted Pod Security Standard asks for. folder: of the node, that may be read."""
    for name in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "nodeName"):
        assert name not in pod
    assert pod.get("hostUsers") in (None, False)
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    assert "serviceAccount" not in pod
    assert "initContainers" not in pod
    assert "ephemeralContainers" not in pod
    from_node = set()
    for volume in pod.get("volumes") or []:
        # A volume with two sources is refused by the API server.
        sources = {key for key, value in volume.items() if value is not None} - {"name"}
        if "hostPath" in sources:
            assert volume["hostPath"]["path"] == folder
            from_node.add(volume["name"])
        assert sources <= {
            "hostPath", "configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
            "projected", "secret",
        }  # fmt: skip
        for projected in (volume.get("projected") or {}).get("sources") or []:
            assert "serviceAccountToken" not in projected
    shared = pod["securityContext"]
    assert_user(shared)
    for container in pod["containers"]:
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own.get("privileged", False) is False
        assert "ALL" in own["capabilities"]["drop"]
        assert "add" not in own["capabilities"]
        assert "procMount" not in own
        assert_user(shared | own)
        for port in container.get("ports") or []:
            assert "hostPort" not in port
        for mount in container.get("volumeMounts") or []:
            assert "mountPropagation" not in mount
            assert mount.get("readOnly") is True or mount.get("name") not in from_node
        for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
            assert "host" not in ((container.get(probe) or {}).get("httpGet") or {})


def assert_user(context: Pod) -> None:
    """Assert the parts of a security context that pod and container have in common."""
    assert context["runAsNonRoot"] is True
    assert type(context["runAsUser"]) is int
    assert context["runAsUser"] > 0
    assert context["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost")
    assert "seLinuxOptions" not in context
    assert "windowsOptions" not in context
    if "appArmorProfile" in context:
        assert context["appArmorProfile"]["type"] in (
            "RuntimeDefault",
            "Localhost",
        )
