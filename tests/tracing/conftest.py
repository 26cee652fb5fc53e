"""Fixtures: a real engine process behind a real gateway, and a collector for the spans of both."""

from collections.abc import Iterator

import pytest
from tests.engine_server import launched_engine
from tests.gateway import conftest as gateway_fixtures
from tests.support.otlp_collector import Collector, running_collector

model_dir = launched_engine.model_dir
launch = launched_engine.launch
quick_servers = gateway_fixtures.quick_servers
start_gateway = gateway_fixtures.start_gateway


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with running_collector() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.base_url)
        yield server
