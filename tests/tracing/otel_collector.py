"""A real OpenTelemetry collector that writes the spans it receives to a file."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from aiohttp.test_utils import unused_port

START_TIMEOUT_S = 30
END_TIMEOUT_S = 30


@dataclass(frozen=True)
class WrittenSpan:
    """A span in the collector's file. Ids are in hexadecimal; parent_id is empty for a root."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str


class OtelCollector:
    """The running collector. url: value of OTEL_EXPORTER_OTLP_ENDPOINT."""

    def __init__(self, binary: Path, folder: Path) -> None:
        address = f"127.0.0.1:{unused_port()}"
        self.url = f"http://{address}"
        self._written, self._log = folder / "spans.jsonl", folder / "log"
        config = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
            "exporters": {"file": {"path": str(self._written)}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
            },
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [binary, "--config", folder / "config.yaml"], stdout=log, stderr=log
            )

    def wait_until_ready(self) -> None:
        """Wait until the receiver answers (a GET gets status 405)."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline_s, self._log.read_text()
            with suppress(httpx.TransportError):
                httpx.get(f"{self.url}/v1/traces")
                return
            time.sleep(0.05)

    def end(self) -> None:
        """Stop the collector, which first writes all spans that it has received."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(END_TIMEOUT_S)
        finally:
            self._process.kill()

    def spans(self) -> list[WrittenSpan]:
        """The spans that the collector wrote. Call it after `end`."""
        exports = [json.loads(line) for line in self._written.read_text().splitlines()]
        return [
            WrittenSpan(
                service=service_name(resource),
                name=span["name"],
                trace_id=span["traceId"],
                span_id=span["spanId"],
                parent_id=span.get("parentSpanId", ""),
            )
            for export in exports
            for resource in export["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


def service_name(resource: dict[str, Any]) -> str:
    attributes = resource["resource"]["attributes"]
    (name,) = [each["value"]["stringValue"] for each in attributes if each["key"] == "service.name"]
    return name


@contextmanager
def running_otel_collector(binary: Path, folder: Path) -> Iterator[OtelCollector]:
    """A collector that runs while the block runs, or until its end() is called."""
    collector = OtelCollector(binary, folder)
    try:
        collector.wait_until_ready()
        yield collector
    finally:
        collector.end()
