"""The comparison of connections with the documented table, and the probe that makes them."""

import socket
from dataclasses import replace
from http.server import ThreadingHTTPServer
from threading import Thread

import pytest
from benchmarks.real_node.connection_matrix import Attempt, Listener, wrong_cells
from benchmarks.real_node.connection_probe import DENIED, REACHED, Answer, connect

from penstock.chart.connections.matrix import DESTINATIONS, SOURCES, default_connections

RIGHT = [
    Attempt(
        source,
        Listener(destination, "10.0.0.1", 1),
        "pod",
        REACHED if (source, destination) in default_connections() else DENIED,
    )
    for source in SOURCES
    for destination in DESTINATIONS
]


def test_a_cell_is_wrong_if_one_of_its_attempts_differs_or_there_is_none() -> None:
    assert wrong_cells(RIGHT, default_connections()) == []
    first, *others = RIGHT
    assert (first.source, first.listener.destination) == ("gateway", "engine")
    assert wrong_cells(others, default_connections()) == [
        "gateway to engine: not tried; expected: reached"
    ]
    denied = replace(first, outcome=DENIED)
    assert wrong_cells([*RIGHT, denied], default_connections()) == [
        "gateway to engine: denied, reached; expected: reached"
    ]
    opened = default_connections() | {("gateway", "operator")}
    assert wrong_cells(RIGHT, opened) == ["gateway to operator: denied; expected: reached"]


@pytest.mark.parametrize(("is_open", "outcome"), [(True, REACHED), (False, DENIED)])
def test_the_probe_tells_a_server_from_a_closed_port(is_open: bool, outcome: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address, port = server.server_address[0], server.server_port
        target = {
            "protocol": "http",
            "address": address,
            "port": port,
            "paths": ["/a", "/v1/completions"],
        }
        if not is_open:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                target["port"] = free.getsockname()[1]
        assert connect(target) == outcome
        server.shutdown()
