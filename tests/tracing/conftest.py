"""Fixtures: a real engine process behind a real gateway, and a sink for the spans of both."""

from collections.abc import Iterator

import pytest
from tests.engine_server import launched_engine
from tests.gateway.support import fixtures as gateway_fixtures
from tests.support.span_sink import SpanSink, running_span_sink

model_dir = launched_engine.model_dir
launch = launched_engine.launch
quick_servers = gateway_fixtures.quick_servers
start_gateway = gateway_fixtures.start_gateway


@pytest.fixture
def span_sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpanSink]:
    with running_span_sink() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.base_url)
        yield server
