"""The time for which an engine has not been ready counts from its last readiness, not its creation."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.controller.services.service_bodies import NEW, child
from tests.support.specs.service_spec import service_spec

from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.pods import ObservedPod
from penstock.observability.metrics.operator import REPLICAS, UNREADY_S
from penstock.observability.service_samples import replica_samples

NOW_S = datetime(2026, 1, 2, tzinfo=UTC).timestamp()


def pod(status=None, at=None):
    body = child("new", NEW)
    if status is not None:
        condition = {"type": "Ready", "status": status, "lastTransitionTime": at}
        body["status"]["conditions"] = [condition]
    return ObservedPod.of(body)


def evicted():
    return replace(pod("False", "2026-01-01T23:00:00Z"), phase="Failed")


def values(spec, pods):
    samples = replica_samples(service_spec(), (), pods, NOW_S)
    return [sample.value for sample in samples if sample.spec is spec]


def age_s(each):
    return NOW_S - parse_timestamp(each.created_at)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([], lambda: 0.0),
        ([pod("True", "2026-01-01T23:00:00Z")], lambda: 0.0),
        ([pod("False", "2026-01-01T23:59:00Z"), pod("True", "2026-01-01T00:00:00Z")], lambda: 60.0),
        ([pod()], lambda: age_s(pod())),
        ([evicted(), pod("False", "2026-01-01T23:59:00Z")], lambda: 60.0),
    ],
)
def test_the_longest_time_of_the_engines_that_are_not_ready(pods, expected):
    assert values(UNREADY_S, pods) == [expected()]


def test_an_evicted_engine_is_no_replica():
    assert values(REPLICAS, [evicted(), pod()]) == [1]
