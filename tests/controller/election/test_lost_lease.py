"""How `penstock operator run` ends when another replica may lead."""

import logging

import pytest
from typer.testing import CliRunner

from penstock.cli.servers import operator
from penstock.controller.election.election import LeadershipLost

ARGUMENTS = ["run", "--engine-image", "engine"]


def run_with(monkeypatch, *errors):
    async def fail(settings):
        raise ExceptionGroup("tasks", [ExceptionGroup("watches", list(errors))])

    monkeypatch.setattr(operator, "run_operator", fail)
    monkeypatch.setattr(operator, "configure_logs", lambda *_: None)
    return CliRunner().invoke(operator.app, ARGUMENTS)


def test_a_lost_lease_is_one_line_and_an_exit_status(monkeypatch, caplog):
    with caplog.at_level(logging.ERROR):
        result = run_with(monkeypatch, LeadershipLost("the Lease could not be renewed"))
    assert (result.exit_code, result.output) == (1, "")
    assert caplog.messages == [f"{operator.LEADERSHIP_LOST}: the Lease could not be renewed"]


def test_another_error_beside_it_keeps_its_traceback(monkeypatch):
    result = run_with(monkeypatch, LeadershipLost("lost"), RuntimeError("unexpected"))
    assert isinstance(result.exception, ExceptionGroup)
    assert result.exception.split(RuntimeError)[0] is not None


@pytest.mark.parametrize("number", [1, 2])
def test_losses_of_several_tasks_are_one(monkeypatch, number):
    result = run_with(monkeypatch, *[LeadershipLost("lost")] * number)
    assert result.exit_code == 1
