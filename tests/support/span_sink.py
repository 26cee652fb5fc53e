"""An OTLP/HTTP server that keeps the spans it receives."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class SpanSink(HTTPServer):
    """The server. exports: all that it received."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.exports: list[ExportTraceServiceRequest] = []

    @property
    def base_url(self) -> str:
        """Value of OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def url(self) -> str:
        return f"{self.base_url}/v1/traces"

    @property
    def spans(self) -> list[Any]:
        return [span for _, span in self.spans_with_service]

    @property
    def spans_with_service(self) -> list[tuple[str, Any]]:
        """Each span with the name of the service that exported it."""
        return [
            (attributes(resource.resource)["service.name"], span)
            for export in self.exports
            for resource in export.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str) -> list[Any]:
        """The spans with this name."""
        return [span for span in self.spans if span.name == name]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, SpanSink)
        assert self.path == "/v1/traces"
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.exports.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def attributes(span: Any) -> dict[str, Any]:
    """The attributes of a span or a resource."""
    return {
        entry.key: getattr(entry.value, entry.value.WhichOneof("value"))
        for entry in span.attributes
    }


def duration_s(span: Any) -> float:
    """Seconds between the start and the end of a span."""
    return float(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9


def contains(outer: Any, inner: Any) -> bool:
    """Whether one span is within the time of another."""
    starts_in = outer.start_time_unix_nano <= inner.start_time_unix_nano
    return bool(starts_in and inner.end_time_unix_nano <= outer.end_time_unix_nano)


@contextmanager
def running_span_sink() -> Iterator[SpanSink]:
    """A sink that listens while the block runs."""
    with SpanSink() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
