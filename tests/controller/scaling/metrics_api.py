"""A local metrics API: serves the memory use of pods, as metrics-server does, to the API server."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from penstock.local.pki import Authority

GROUP_VERSION = "metrics.k8s.io/v1beta1"
ROOT = f"/apis/{GROUP_VERSION}"


def labels_of(selector):
    """The labels of a selector, in whatever order."""
    return frozenset(selector.split(","))


class MetricsApi:
    """HTTPS server on a loopback port. pods: names of the pods by the labels of a selector.

    total_mib: memory that all pods use together. selectors: those that were asked for.
    """

    def __init__(self, folder):
        self.total_mib, self.pods, self.selectors = 0, {}, set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                address = urlsplit(self.path)
                body = outer.answer(address.path, parse_qs(address.query))
                text = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        Authority(folder).issue("metrics", "metrics-api", addresses=("127.0.0.1",))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "metrics.crt", folder / "metrics.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def port(self):
        return self._server.server_address[1]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path, query):
        if not path.startswith(f"{ROOT}/namespaces/"):
            return {
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION,
                "resources": [
                    {"name": "pods", "kind": "PodMetrics", "namespaced": True, "verbs": ["list"]}
                ],
            }  # fmt: skip
        namespace = path.split("/")[5]
        selector = labels_of(query["labelSelector"][0])
        self.selectors.add(selector)
        return {
            "kind": "PodMetricsList", "apiVersion": GROUP_VERSION, "metadata": {},
            "items": [self._pod(namespace, *each) for each in self._shares(selector)],
        }  # fmt: skip

    def _shares(self, selector):
        pods = self.pods.get(selector, ())
        return [(name, f"{self.total_mib // len(pods)}Mi") for name in pods]

    def _pod(self, namespace, name, memory):
        return {
            "metadata": {"name": name, "namespace": namespace},
            "timestamp": "2026-01-01T00:00:00Z", "window": "30s",
            "containers": [{"name": "engine", "usage": {"cpu": "1", "memory": memory}}],
        }  # fmt: skip
