"""Serves the progress of a fetch as metrics, without letting clients slow the fetch down."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socket import AF_INET, AF_INET6
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock_engine.contract import feature_metric_specs as specs
from penstock_engine.sources.progress import Progress
from penstock_engine.telemetry.exposition import render

PATH = "/metrics"
MAX_CLIENTS = 8  # at the same time, each with a thread; further connections are closed
CLIENT_TIMEOUT_S = 5.0  # without a byte of the request, or room for one of the answer
POLL_S = 0.1  # between checks whether the fetch has ended


@contextmanager
def serving_metrics(
    progress: Progress, host: str, port: int, say: Callable[[str], None]
) -> Iterator[None]:
    """Serve the metrics of a fetch at an address; if that is taken, say so and go on without."""
    registry = CollectorRegistry()
    registry.register(_ProgressCollector(progress))
    try:
        server = _Server(host, port, registry)
    except OSError as error:
        problem = os.strerror(error.errno or 0)
        say(f"No metrics are served: {host}:{port} cannot be used ({problem}): set another --port")
        yield
        return
    thread = threading.Thread(
        target=server.serve_forever, args=(POLL_S,), name="metrics", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _ProgressCollector(Collector):
    """Reads the progress at each scrape."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Any]:
        state = self._progress.state()
        for spec, value in (
            (specs.FETCH_BYTES, state.done_bytes),
            (specs.FETCH_TOTAL_BYTES, state.total_bytes),
            (specs.FETCH_BYTES_PER_SECOND, state.bytes_per_s),
        ):
            yield GaugeMetricFamily(spec.name, spec.help, value)
        downloaded = specs.FETCH_DOWNLOADED_BYTES
        yield CounterMetricFamily(downloaded.name, downloaded.help, state.downloaded_bytes)


class _Server(ThreadingMixIn, TCPServer):
    """A server with a thread for each of a few clients. Raises OSError if its address cannot be used."""

    allow_reuse_address = True
    # Connections that wait to be accepted: with 5, the default, clients of a burst wait for seconds.
    request_queue_size = 128
    daemon_threads = True

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self._free = threading.Semaphore(MAX_CLIENTS)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: a client that disconnected is no problem of the fetch."""


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"The metrics are at {PATH}")
            return
        body, content_type = render(self.server.registry, self.headers.get("Accept", ""))
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass
