"""Listens at ports, or connects to addresses and prints the outcomes; runs in pods by Python alone.

python - listen PORT ...     answers each HTTP request
python - connect JSON        JSON: a list of {"protocol", "address", "port", "paths"}; prints a list of texts
"""

import json
import socket
import ssl
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

# Policies drop packets, or refuse connections: no more can be known of a denial than that nothing came.
TIMEOUT_S = 3.0
REACHED, DENIED = "reached", "denied"
DNS_NAME = "kubernetes.default.svc.cluster.local"


class Answer(BaseHTTPRequestHandler):
    """Answers each request with its path."""

    def do_GET(self) -> None:
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Write no log."""


def listen(ports: list[int]) -> None:
    """Answer at all these ports until the process ends."""
    threads = [
        Thread(target=ThreadingHTTPServer(("", port), Answer).serve_forever) for port in ports
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def connect(target: dict[str, Any]) -> str:
    """Connect by the target's protocol. Returns REACHED, DENIED, or a description of another outcome."""
    end = (target["address"], target["port"])
    try:
        match target["protocol"]:
            case "http":
                outcomes = {ask(end, path) for path in target["paths"]}
                return REACHED if outcomes == {True} else "a connection without an answer"
            case "tls":
                shake_hands(end)
            case _:
                return resolve(end)
    except OSError:
        return DENIED
    return REACHED


def ask(end: tuple[str, int], path: str) -> bool:
    """Whether a request is answered, with whichever status."""
    method = "POST" if "adapter" in path or "completions" in path else "GET"
    request = (
        f"{method} {path} HTTP/1.1\r\nHost: probe\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(end, TIMEOUT_S) as connection:
        connection.settimeout(5 * TIMEOUT_S)
        connection.sendall(request.encode())
        return connection.recv(5) == b"HTTP/"


def shake_hands(end: tuple[str, int]) -> None:
    """Complete a TLS handshake, with whichever certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(end, TIMEOUT_S) as connection, context.wrap_socket(connection):
        pass


def resolve(end: tuple[str, int]) -> str:
    """Ask a DNS server by UDP and by TCP."""
    name = b"".join(bytes([len(part)]) + part.encode() for part in DNS_NAME.split("."))
    query = struct.pack(">6H", 1, 0x100, 1, 0, 0, 0) + name + b"\0" + struct.pack(">2H", 1, 1)
    outcomes = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(TIMEOUT_S)
        try:
            connection.sendto(query, end)
            outcomes.add(connection.recv(512)[:2] == query[:2])
        except OSError:
            outcomes.add(False)
    try:
        with socket.create_connection(end, TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">H", len(query)) + query)
            outcomes.add(connection.recv(2) != b"")
    except OSError:
        outcomes.add(False)
    if len(outcomes) > 1:
        return "UDP or TCP alone"
    return REACHED if outcomes.pop() else DENIED


if __name__ == "__main__":
    if sys.argv[1] == "listen":
        listen([int(port) for port in sys.argv[2:]])
    else:
        targets = json.loads(sys.argv[2])
        with ThreadPoolExecutor(len(targets)) as pool:
            print(json.dumps(list(pool.map(connect, targets))))
