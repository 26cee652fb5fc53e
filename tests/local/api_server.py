"""API server with answers that a test sets, and `penstock` against it."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner, Result

from penstock.cli.main import build

STABLE = {
    "metadata": {
        "name": "chat", "namespace": "team", "uid": "u", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {"model": {"uri": "pvc://models"}},
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


def penstock(*words: str) -> Result:
    return CliRunner().invoke(build(words[0]), list(words))
