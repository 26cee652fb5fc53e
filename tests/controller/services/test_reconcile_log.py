"""Log lines of reconciles: one for each that wrote something."""

import logging
from typing import Any

import pytest

from penstock.controller.services.reconcile_log import log_writes
from penstock.observability import logs

KEY = ("default", "chat")
ROLLOUT = {"phase": "Growing", "message": "10 % of the requests"}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "penstock.controller.services.reconcile_log")
    return lambda: [(record.message, record.fields) for record in caplog.records]


def test_a_reconcile_that_wrote_nothing_has_no_line(lines: Any) -> None:
    log_writes(KEY, [], {"rollout": ROLLOUT}, "r1")
    assert lines() == []


def test_the_line_has_the_writes_and_the_reason(lines: Any) -> None:
    written = ["apply Deployment/chat-r2", "status rollout, traffic"]
    scaling = {"message": "4 replicas have room"}
    log_writes(KEY, written, {"rollout": ROLLOUT, "scaling": scaling}, "r2")
    status = {"rollout": ROLLOUT, "scaling": scaling}
    log_writes(KEY, ["scale Deployment/chat-r2 to 4"], status, "r2", ["set chat-r2 to 4 replicas"])
    first = {
        "service": "default/chat", "revision": "r2", "phase": "Growing", "written": written,
        "reason": "10 % of the requests",
    }  # fmt: skip
    (message, fields), (_, scaled) = lines()
    assert (message, fields) == ("reconciled", first)
    assert scaled["scaling_reason"] == "4 replicas have room"
    assert scaled.keys() == logs.RECONCILE.keys()


def test_an_invalid_spec_is_the_reason(lines: Any) -> None:
    stalled = {"type": "Stalled", "status": "True", "message": "spec.model.uri: it has no scheme"}
    log_writes(KEY, ["status conditions"], {"conditions": [stalled]}, None)
    ((_, fields),) = lines()
    assert fields["reason"] == "spec.model.uri: it has no scheme"
    assert "revision" not in fields
