"""The API server and the namespace that commands use, and what they say without credentials."""

from pathlib import Path
from typing import Any

import pytest
from tests.local.api_server import ApiServer, penstock

from penstock.clients.kubernetes.kubeconfig import current_namespace, load_configuration


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The service account folder of a pod, with the variables of its cluster."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("pod")
    (folder / "ca.crt").write_text("a certificate")
    (folder / "namespace").write_text("pods-own\n")
    monkeypatch.setenv("PENSTOCK_SERVICE_ACCOUNT_DIR", str(folder))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


@pytest.mark.usefixtures("account")
def test_in_a_pod_a_given_kubeconfig_is_used(api: ApiServer) -> None:
    outcome = penstock("rollout", "status", "chat")
    assert outcome.exit_code == 0, outcome.output
    assert [path.split("/namespaces/")[1] for path in api.paths] == ["team/inferenceservices/chat"]


@pytest.mark.usefixtures("account")
async def test_in_a_pod_without_a_kubeconfig_the_service_account_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for value in (None, ""):
        if value is None:
            monkeypatch.delenv("KUBECONFIG", raising=False)
        else:
            monkeypatch.setenv("KUBECONFIG", value)
        assert (await load_configuration()).host == "https://10.96.0.1:443"
        assert current_namespace() == "pods-own"


def test_a_pods_account_without_a_namespace(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (account / "namespace").unlink()
    assert current_namespace() == "default"


@pytest.mark.parametrize("context", [{}, {"namespace": None}, {"namespace": ""}])
def test_a_context_without_a_namespace_means_default(
    context: dict[str, Any], api: ApiServer, tmp_path: Path
) -> None:
    api.kubeconfig(tmp_path / "kubeconfig", context)
    assert penstock("rollout", "status", "chat").exit_code == 0
    assert "/namespaces/default/" in api.paths[0]


@pytest.mark.parametrize("words", [["rollout", "status"], ["explain"], ["record"]])
def test_every_command_takes_the_contexts_namespace(
    words: list[str], api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All commands default to the context's namespace.

    `recording` is replaced, as it would first read the Lease in the operator's namespace.
    """
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []
    if words == ["record"]:
        monkeypatch.setattr(
            "penstock.cli.scaling.record.recording",
            lambda _kube, _namespace, _lease, name, **_: _nothing(asked, name),
        )
    monkeypatch.setattr(
        "penstock.cli.scaling.explain.recording",
        lambda *_, **__: _nothing([], "explain reads the service"),
    )
    penstock(*words, "chat")
    penstock(*words, "chat", "-n", "given")
    found = asked or [path.split("/namespaces/")[1].split("/")[0] for path in api.paths]
    assert [each.removesuffix("/chat") for each in found] == ["team", "given"]


async def _nothing(asked: list[str], name: str) -> Any:
    asked.append(name)
    for line in ():
        yield line


@pytest.mark.parametrize(
    "words",
    [["rollout", "status", "chat"], ["explain", "chat"], ["record", "chat"], ["adapters"]],
    ids=" ".join,
)
def test_an_api_server_that_cannot_be_reached_is_named(
    words: list[str], api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "kubeconfig"
    path.write_text(path.read_text().replace(api.url, "http://127.0.0.1:1"))
    outcome = penstock(*words)
    assert outcome.exit_code == 2
    assert "the API server http://127.0.0.1:1 cannot be reached" in outcome.stderr


@pytest.mark.parametrize("text", [None, "root:x:0:0", "- a", "a: [", ""])
def test_a_kubeconfig_that_cannot_be_read_is_an_error_with_a_remedy(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path if text is None else tmp_path / "malformed"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(path))
    outcome = penstock("rollout", "status", "chat")
    assert outcome.exit_code in (1, 2)
    assert "no credentials for a cluster" in outcome.stderr
    assert outcome.stderr.strip().endswith("set KUBECONFIG")


def test_an_empty_kubeconfig_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/dev/null")
    outcome = penstock("rollout", "status", "chat")
    assert outcome.stderr == (
        "penstock rollout: no credentials for a cluster: /dev/null is empty, or no kubeconfig; set "
        "KUBECONFIG\n"
    )


def test_without_a_cluster_the_command_that_starts_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    outcome = penstock("explain", "chat")
    assert outcome.exit_code == 1
    assert outcome.stderr == (
        f"penstock explain: no credentials for a cluster: there is no {tmp_path}/.kube/config; "
        'run `penstock local up` and `eval "$(penstock local env)"`, or set KUBECONFIG\n'
    )
    assert caplog.messages == []
