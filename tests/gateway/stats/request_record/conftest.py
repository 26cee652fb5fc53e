"""Records of requests for one service, with a manual clock."""

from dataclasses import replace

import pytest
from tests.gateway.stats.recorded_requests import Clock

from penstock.core.routing.apis import CHAT, COMPLETIONS
from penstock.gateway.apis.request import parse
from penstock.gateway.stats.request_record import RequestRecord
from penstock.gateway.stats.service_stats import ServiceStats


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stats():
    return ServiceStats()


@pytest.fixture
def make(stats, clock):
    def make(*, stream=True, chat=False, **more):
        empty = parse(b'{"model": "chat"}', CHAT if chat else COMPLETIONS)
        request = replace(empty, is_stream=stream, prompt_bytes=1200)
        return RequestRecord(stats, clock, request, clock.now_s, **more)

    return make
