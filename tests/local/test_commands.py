"""Commands against an API server: choice of server and namespace, errors and outages."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from penstock.cli import rollout_status
from penstock.cli.main import build
from penstock.clients.kubeconfig import current_namespace, load_configuration
from penstock.core.spec.service import REVISION_LABEL

STABLE = {
    "metadata": {"name": "chat", "uid": "u", "generation": 1},
    "spec": {},
    "status": {
        "observedGeneration": 1,
        "stableRevision": "aaa",
        "rollout": {
            "phase": "Stable", "strategy": "Canary", "revision": "aaa",
            "phaseTransitionTime": "2026-01-01T00:00:00Z", "message": "all [/good] and [well]",
        },
        "conditions": [{"type": "RolledOut", "status": "True", "reason": "Stable", "message": ""}],
    },
}  # fmt: skip

STALLED = [
    {"type": "RolledOut", "status": "False", "reason": "UnsupportedByRuntime", "message": "no"},
    {"type": "Reconciling", "status": "False", "reason": "Stalled", "message": "see Stalled"},
    {"type": "Stalled", "status": "True", "reason": "UnsupportedByRuntime", "message": "not here"},
]

Answer = tuple[int, dict[str, Any]]


class ApiServer:
    """HTTP server that sends `answers` in turn, and repeats the last one."""

    def __init__(self) -> None:
        self.answers: list[Answer] = [(200, STABLE)]
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.paths.append(self.path)
                code, body = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                text = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def kubeconfig(self, path: Path, context: dict[str, Any]) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "one",
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"} | context}],
            "clusters": [{"name": "one", "cluster": {"server": self.url}}],
            "users": [{"name": "one", "user": {"token": "x"}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path


@pytest.fixture
def start() -> Iterator[Callable[[], ApiServer]]:
    started: list[tuple[ApiServer, threading.Thread]] = []

    def start() -> ApiServer:
        api = ApiServer()
        thread = threading.Thread(target=api.server.serve_forever, args=(0.05,))
        thread.start()
        started.append((api, thread))
        return api

    yield start
    for api, thread in started:
        api.server.shutdown()
        api.server.server_close()
        thread.join()


@pytest.fixture
def api(
    start: Callable[[], ApiServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ApiServer:
    """The server of a context with the namespace `team`."""
    made = start()
    path = made.kubeconfig(tmp_path / "kubeconfig", {"namespace": "team"})
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr(rollout_status, "POLL_S", 0.01)
    return made


def penstock(*words: str) -> Result:
    return CliRunner().invoke(build(words[0]), list(words))


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
            "penstock.cli.record.recording",
            lambda _kube, _namespace, _lease, name, **_: _nothing(asked, name),
        )
    monkeypatch.setattr(
        "penstock.cli.explain.recording", lambda *_, **__: _nothing([], "explain reads the service")
    )
    penstock(*words, "chat")
    penstock(*words, "chat", "-n", "given")
    found = asked or [path.split("/namespaces/")[1].split("/")[0] for path in api.paths]
    assert [each.removesuffix("/chat") for each in found] == ["team", "given"]


async def _nothing(asked: list[str], name: str) -> Any:
    asked.append(name)
    for line in ():
        yield line


def test_explain_of_a_service_that_penstock_does_not_scale(api: ApiServer) -> None:
    api.answers = [(200, STABLE | {"spec": {"scaling": {"mode": "External"}}})]
    outcome = penstock("explain", "chat")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.startswith("spec.replicas sets the number")


def test_explain_without_rights_on_the_operator_prints_the_status(api: ApiServer) -> None:
    scaling = {
        "desiredReplicas": 2, "lastScaleTime": "2026-01-01T00:00:00Z", "message": "the load asks for it",
        "trail": [],
    }  # fmt: skip
    denied = {"message": 'leases "penstock-operator" is forbidden', "reason": "Forbidden"}
    service = STABLE | {"status": {**STABLE["status"], "scaling": scaling}}  # type: ignore[dict-item]
    api.answers = [(200, service), (403, denied)]
    outcome = penstock("explain", "chat")
    assert outcome.exit_code == 1
    assert "2 replicas since 2026-01-01T00:00:00Z: the load asks for it" in outcome.output
    assert "is forbidden" in outcome.output
    assert "docs/concepts/security.md" in outcome.output


def test_an_unknown_revision_is_refused_with_a_list_of_the_known_ones(api: ApiServer) -> None:
    entry = {
        "metadata": {
            "name": "chat-aaa", "labels": {REVISION_LABEL: "aaa"},
            "uid": "r", "ownerReferences": [{"uid": "u"}],
        },
        "revision": 1,
    }  # fmt: skip
    found: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "ControllerRevisionList"}
    found |= {"metadata": {"resourceVersion": "1"}, "items": [entry]}
    api.answers = [(200, STABLE), (200, found)]
    outcome = penstock("rollout", "undo", "chat", "--to", "bbb")
    assert outcome.exit_code == 1
    assert "the history of chat has no revision bbb; it has: aaa" in outcome.stderr


@pytest.mark.parametrize(
    ("strategy", "phase", "said"),
    [
        ("Rolling", "Replacing", "--watch), or abort it first"),
        ("Canary", "Judging", "--watch), or promote or abort it first"),
    ],
)
def test_a_refused_restart_names_the_commands_that_the_phase_takes(
    strategy: str, phase: str, said: str, api: ApiServer
) -> None:
    service = json.loads(json.dumps(STABLE))
    service["status"]["rollout"] |= {"strategy": strategy, "phase": phase, "revision": "bbb"}
    api.answers = [(200, service)]
    outcome = penstock("rollout", "restart", "chat")
    assert outcome.exit_code == 1
    assert outcome.stderr.strip().endswith(said)


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        (
            "Discarding",
            "cannot promote chat, which is Discarding: the new revision's pods finish their streams and "
            "terminate",
        ),
        (
            "Rejected",
            "cannot promote chat, which is Rejected: like Stable, with a revision that is not retried; "
            "possible now: resume",
        ),
        ("Stable", "cannot promote chat, which is Stable: no rollout is in progress"),
    ],
)
def test_a_refused_command_says_what_the_phase_does(phase: str, said: str, api: ApiServer) -> None:
    service = json.loads(json.dumps(STABLE))
    service["status"]["rollout"]["phase"] = phase
    api.answers = [(200, service)]
    outcome = penstock("rollout", "promote", "psvc/chat")
    assert outcome.exit_code == 1
    assert outcome.stderr == f"penstock rollout: {said}\n"


def test_an_api_server_that_cannot_be_reached_is_named(api: ApiServer, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(path.read_text().replace(api.url, "http://127.0.0.1:1"))
    outcome = penstock("rollout", "status", "chat")
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


UNAVAILABLE: Answer = (503, {"message": "etcd is away"})


def test_a_watch_outlasts_short_outages(api: ApiServer) -> None:
    api.answers = [
        UNAVAILABLE,
        (200, STABLE),
        (429, {"message": "slow"}),
        UNAVAILABLE,
        (200, STABLE),
    ]
    outcome = penstock("rollout", "status", "chat", "--watch")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stderr.count("trying again") == 2  # once for each outage
    assert len(api.paths) == 5
    assert "all [/good] and [well]" in outcome.stdout


def test_an_outage_has_another_exit_code_than_a_failed_rollout(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI distinguishes them by the exit code."""
    monkeypatch.setattr(rollout_status, "RETRY_FOR_S", 0.05)
    api.answers = [(200, STABLE), UNAVAILABLE]
    assert penstock("rollout", "status", "chat", "--watch").exit_code == 2
    rejected = json.loads(json.dumps(STABLE))
    rejected["status"]["rollout"]["phase"] = "Rejected"
    rejected["status"]["conditions"] = STALLED
    api.answers = [(200, rejected)]
    assert penstock("rollout", "status", "chat", "--watch").exit_code == 1


def test_a_watch_fails_at_once_if_the_spec_is_refused(api: ApiServer) -> None:
    """The phase is that of the last accepted spec, whose revision goes on serving."""
    refused = json.loads(json.dumps(STABLE))
    refused["status"]["conditions"] = STALLED
    api.answers = [(200, refused)]
    outcome = penstock("rollout", "status", "chat", "--watch")
    assert outcome.exit_code == 1
    assert "  stalled: not here" in outcome.stdout


def test_a_watch_fails_if_the_service_does_not_take_an_adapter(api: ApiServer) -> None:
    """No version of such an adapter is rolled out, so its status has no phase."""
    status = {"observedGeneration": 1, "conditions": STALLED}
    api.answers = [(200, STABLE | {"status": status})]
    outcome = penstock("rollout", "status", "lora/sql", "--watch")
    assert outcome.exit_code == 1
    assert outcome.stdout.splitlines() == [
        "lora/sql: no revision has been rolled out yet",
        "  stalled: not here",
    ]


@pytest.mark.parametrize(
    ("phase", "is_shown"), [("Judging", True), ("Paused", False), ("Stable", False)]
)
def test_missing_requests_are_named_only_while_a_canary_waits_for_them(
    phase: str, is_shown: bool, api: ApiServer
) -> None:
    body = json.loads(json.dumps(STABLE))
    evidence = {"metric": "TTFT", "canarySamples": 0}
    body["status"]["rollout"] |= {"phase": phase, "evidence": [evidence]}
    api.answers = [(200, body)]
    shown = penstock("rollout", "status", "chat").stdout
    assert ("the canary has not answered a request yet" in shown) == is_shown


@pytest.mark.parametrize(
    ("changed", "stable", "line"),
    [
        (
            {
                "phase": "Rejected",
                "rejected": {"revision": "bbb", "at": "2026-01-01T00:00:00Z", "reason": "bad"},
            },
            "aaa",
            "chat: revision bbb was rejected at 2026-01-01T00:00:00Z: bad; revision aaa serves",
        ),
        ({"phase": "Starting", "strategy": "Recreate"}, None, "chat: first revision aaa: Starting"),
        (
            {"phase": "Waiting", "strategy": "BlueGreen"},
            "bbb",
            "  waiting for: kubectl penstock rollout promote or abort chat",
        ),
        (
            {"phase": "Paused"},
            "bbb",
            "  waiting for: kubectl penstock rollout promote or abort or resume chat",
        ),
    ],
)
def test_status_names_the_revision_and_what_is_awaited(
    changed: dict[str, Any], stable: str | None, line: str, api: ApiServer
) -> None:
    body = json.loads(json.dumps(STABLE))
    body["status"]["stableRevision"] = stable
    body["status"]["rollout"] |= changed
    api.answers = [(200, body)]
    # The variable COLUMNS wraps the line.
    shown = penstock("rollout", "status", "chat").stdout.split()
    assert " ".join(line.split()) in " ".join(shown)


@pytest.mark.parametrize(("code", "exit_code"), [(403, 1), (404, 1), (503, 2)])
def test_without_watch_nothing_is_retried(code: int, exit_code: int, api: ApiServer) -> None:
    api.answers = [(code, {"message": "no"})]
    assert penstock("rollout", "status", "chat").exit_code == exit_code
    assert len(api.paths) == 1


def test_a_watch_that_is_not_allowed_ends_at_once(api: ApiServer) -> None:
    api.answers = [(403, {"message": "no"})]
    assert penstock("rollout", "status", "chat", "--watch").exit_code == 1
    assert len(api.paths) == 1


def test_a_failed_recording_does_not_overwrite_an_earlier_file(
    api: ApiServer, tmp_path: Path
) -> None:
    earlier = tmp_path / "recording.jsonl"
    earlier.write_text("a week's work\n")
    api.answers = [(404, {"message": "no Lease"})]
    outcome = penstock("record", "chat", "-o", str(earlier))
    assert outcome.exit_code == 1
    assert earlier.read_text() == "a week's work\n"


@pytest.mark.parametrize(
    "words",
    [
        ["calibrate", "http://127.0.0.1:1", "-o"],
        ["record", "chat", "-o"],
        ["simulate", "--json"],
        ["simulate", "--plot"],
        ["simulate-rollout", "--rate=1", "--runs=1", "--hours=0.02", "--json"],
    ],
)
def test_an_unwritable_output_file_is_refused_before_the_work(
    words: list[str], api: ApiServer, tmp_path: Path
) -> None:
    for path, said in ((tmp_path / "missing" / "out", "missing"), (tmp_path, "folder")):
        outcome = penstock(*words, str(path))
        assert outcome.exit_code == 2
        assert said in re.sub(r"[\s│]", "", outcome.output)  # a long path is wrapped in a box
    assert api.paths == []


@pytest.mark.parametrize("text", ["TIMESTAMP,ContextTokens,GeneratedTokens\n"])
def test_an_empty_trace_fails(text: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    outcome = penstock("simulate", "--trace", str(trace), "--duration-s", "10", "--interpreted")
    assert outcome.exit_code == 2
    assert "no request" in outcome.output


@pytest.mark.parametrize("words", [["explain", "chat"], ["record", "chat"]])
def test_a_stalled_service_without_a_decision_is_not_waited_for(
    words: list[str], api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stalled = {"type": "Stalled", "status": "True", "reason": "NoModel", "message": "no model"}
    api.answers = [(200, STABLE | {"spec": {}, "status": {"conditions": [stalled]}})]
    outcome = penstock(*words)
    assert outcome.exit_code == 1
    assert "no decision is made on chat: no model" in outcome.stderr


def test_the_demo_outside_a_checkout_names_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = penstock("demo")
    assert outcome.exit_code == 2
    assert "--root" in outcome.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("penstock ro", ["rollout"]),
        ("penstock rollout pro", ["promote"]),
        ("penstock simulate --see", ["--seeds"]),
    ],
)
def test_a_shell_completes_commands_and_options(line: str, words: list[str]) -> None:
    """A command's own words are known although only one command is imported."""
    position = str(len(line.split()) - 1)
    asked = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": position}
    penstock = Path(sys.executable).with_name("penstock")
    done = subprocess.run(
        [penstock], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == words
