"""States of a batch, and its record in the store."""

import json
from dataclasses import replace

import pytest

from penstock.core.batches.records import UNFINISHED, Batch, BatchError
from penstock.core.formats.serialization import deserialize, serialize

NEW = Batch(
    id="batch_1", tenant="team", endpoint="/v1/completions", input_file="file-1", output_file="file-2",
    error_file="file-3", created_s=100, expires_s=86500, results_retention_s=3600, metadata={"run": "7"},
)  # fmt: skip


def test_a_batch_completes() -> None:
    running = NEW.start(110, 3, "chat")
    done = running.finalize(120).finish(130, has_output_file=True, has_error_file=False)
    assert (running.status, running.in_progress_s, running.num_lines) == ("in_progress", 110, 3)
    assert (done.status, done.finalizing_s, done.completed_s) == ("completed", 120, 130)
    assert (done.is_finished, done.may_be_cancelled, done.has_output_file) == (True, False, True)


def test_a_batch_whose_time_is_over_has_expired_when_its_results_are_written() -> None:
    ending = NEW.start(110, 3, "chat").finalize(86500, is_expiring=True)
    ended = ending.finish(86501, has_output_file=False, has_error_file=True)
    assert (ending.status, ended.status) == ("finalizing", "expired")
    assert (ended.expired_s, ended.completed_s) == (86501, None)


def test_a_batch_that_was_stopped_by_an_error_fails_when_its_results_are_written() -> None:
    error = BatchError("storage_full", "delete some")
    ending = NEW.start(110, 3, "chat").finalize(120, errors=(error,))
    ended = ending.finish(130, has_output_file=True, has_error_file=True)
    assert (ending.status, ended.status, ended.errors) == ("finalizing", "failed", (error,))
    assert (ended.failed_s, ended.completed_s, ended.has_output_file) == (130, None, True)


def test_a_cancelled_batch_keeps_what_is_done() -> None:
    cancelling = NEW.start(110, 3, "chat").cancel(115)
    ended = cancelling.finish(116, has_output_file=True, has_error_file=True)
    assert (cancelling.status, ended.status) == ("cancelling", "cancelled")
    assert (ended.cancelling_s, ended.cancelled_s, ended.has_output_file) == (115, 116, True)


@pytest.mark.parametrize("status", sorted(UNFINISHED))
def test_only_lines_that_may_run_are_cancelled(status: str) -> None:
    batch = replace(NEW, status=status)  # type: ignore[arg-type]
    assert batch.may_be_cancelled == (status in ("validating", "in_progress"))
    assert not batch.is_finished


def test_a_record_is_read_as_it_was_written() -> None:
    failed = NEW.fail(105, (BatchError("invalid_json_line", "wrong", 2, "body"),))
    assert deserialize(Batch, json.loads(json.dumps(serialize(failed)))) == failed
