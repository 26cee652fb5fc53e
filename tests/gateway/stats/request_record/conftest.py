"""Records of requests for one service, with a manual clock."""

import pytest
from tests.gateway.stats.recorded_requests import Clock

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
        return RequestRecord(
            stats, clock, clock.now_s, 1200, is_stream=stream, is_chat=chat, **more
        )

    return make
