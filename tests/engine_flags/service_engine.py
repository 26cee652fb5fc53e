"""Runs the engine of an InferenceService on this machine: its pod's arguments, variables and mounts."""

import io
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from aiohttp.test_utils import unused_port
from prometheus_client.parser import text_string_to_metric_families
from tests.support.engine.engine_process import start_engine
from tests.support.span_sink import SpanSink

from penstock.api.conversion.convert import to_core
from penstock.api.inferenceservice.kind import KIND
from penstock.core.manifests.engine_pod import preflight_pod, serve_pod
from penstock.core.observed.refusal_message import refusal_message
from penstock.core.spec.service import (
    API_VERSION,
    ENGINE_PORT,
    EVENTS_PORT,
    EVENTS_REPLAY_PORT,
)
from penstock_engine.cli import main

START_TIMEOUT_S = 120
NAME = "kettle"

Spec = dict[str, Any]


def service(model_dir: Path, spec: Spec) -> dict[str, Any]:
    """An InferenceService that serves the model, with these fields of the spec."""
    metadata = {
        "name": NAME, "namespace": "default", "uid": "u", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    model = {"uri": f"file://{model_dir}"}
    resources = {"limits": {"cpu": "1", "memory": "2Gi"}}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": {"model": model, "resources": resources} | spec,
    }


@dataclass
class Container:
    """An engine's or a preflight's container: arguments and variables, as the process gets them."""

    args: list[str]
    variables: dict[str, str]


def _container(pod: dict[str, Any], config_maps: Mapping[str, Path], port: int) -> Container:
    """Replace what Kubernetes would: the variables in arguments, and mounts by folders of this machine."""
    (container,) = pod["containers"]
    sources = {volume["name"]: volume for volume in pod["volumes"]}
    folders = {}
    for mount in container["volumeMounts"]:
        source = sources[mount["name"]]
        if "hostPath" in source:
            folders[mount["mountPath"]] = source["hostPath"]["path"]
        elif "configMap" in source:
            folders[mount["mountPath"]] = str(config_maps[source["configMap"]["name"]])
    args = [arg.replace("$(POD_IP)", "127.0.0.1") for arg in container["args"]]
    args = [f"--port={port}" if arg == f"--port={ENGINE_PORT}" else arg for arg in args]
    for fixed in (EVENTS_PORT, EVENTS_REPLAY_PORT):
        args = [arg.replace(f"tcp://*:{fixed}", f"tcp://*:{unused_port()}") for arg in args]
    for mounted, folder in folders.items():
        args = [arg.replace(mounted, folder) for arg in args]
    variables = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    variables["PENSTOCK_LOCAL_MOUNTS"] = json.dumps(folders)
    return Container(args, variables)


class Engine:
    """A running engine. client: of its API. process: its main process."""

    def __init__(self, process: ForkServerProcess, port: int, log_path: Path, model_dir: Path):
        self.process = process
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        self.model_dir = model_dir
        self.span_sink: SpanSink | None = None
        self._log_path = log_path

    def wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self.process.is_alive(), self.log
            assert time.monotonic() < deadline_s, self.log
            with suppress(httpx.TransportError):
                if self.client.get("/ready").status_code == 200:
                    return
            time.sleep(0.05)

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    @cached_property
    def cache_config(self) -> dict[str, str]:
        """Labels of vllm:cache_config_info."""
        (labels,) = (
            labels for name, labels, _ in self.samples if name.endswith("cache_config_info")
        )
        return labels

    @property
    def samples(self) -> list[tuple[str, dict[str, str], float]]:
        """Name, labels and value of each sample of the metrics."""
        families = text_string_to_metric_families(self.client.get("/metrics").text)
        return [(s.name, s.labels, s.value) for family in families for s in family.samples]

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples with this name and these labels."""
        return sum(
            value
            for found, own, value in self.samples
            if found == name and labels.items() <= own.items()
        )

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def complete(self, **body: Any) -> dict[str, Any]:
        """The answer to a completion request."""
        answer = self.post("/v1/completions", **{"prompt": "The engine", "max_tokens": 4} | body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def chat(self, **body: Any) -> dict[str, Any]:
        """The answer to a chat request."""
        messages = [{"role": "user", "content": "Say something."}]
        answer = self.post(
            "/v1/chat/completions", **{"messages": messages, "max_tokens": 4, "seed": 3} | body
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def prompt(self, **body: Any) -> str:
        """The prompt of a chat request, as text."""
        messages = [{"role": "user", "content": "Hi."}]
        tokens = self.post("/tokenize", **{"messages": messages} | body).json()["tokens"]
        text: str = self.post("/detokenize", tokens=tokens).json()["prompt"]
        return text


def preflight(
    model_dir: Path, spec: Spec, config_maps: Mapping[str, Path] | None = None
) -> dict[str, Any]:
    """The verdict of the service's preflight; of a refusal with the message that the condition shows."""
    pod = preflight_pod(to_core(service(model_dir, spec)), "image")
    container = _container(pod, config_maps or {}, 0)
    at = container.args.index("--termination-log")
    args = [*container.args[:at], *container.args[at + 2 :]]
    output = io.StringIO()
    with (
        patch.object(sys, "argv", ["penstock-engine", *args]),
        patch.dict(os.environ, container.variables),
        redirect_stdout(output),
        suppress(SystemExit),
    ):
        main()
    verdict: dict[str, Any] = json.loads(output.getvalue())
    return verdict if verdict["ok"] else verdict | {"message": refusal_message(verdict)}


@contextmanager
def running_engine(
    model_dir: Path, spec: Spec, log_path: Path, config_maps: Mapping[str, Path] | None = None
) -> Iterator[Engine]:
    """An engine that runs with the arguments and variables that the operator renders for the spec."""
    port = unused_port()
    pod = serve_pod(to_core(service(model_dir, spec)), "image")
    container = _container(pod, config_maps or {}, port)
    command, *args = container.args
    assert command == "serve"
    process = start_engine(args, log_path, container.variables)
    engine = Engine(process, port, log_path, model_dir)
    try:
        engine.wait_until_ready()
        yield engine
    finally:
        engine.client.close()
        process.kill()
        process.join()
