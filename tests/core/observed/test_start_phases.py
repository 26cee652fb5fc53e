"""Phases of the start of a pod, by its status."""

from tests.support.cluster.started_pod import at, ready_pod

from penstock.core.observed.start_phases import start_phases


def test_a_start_without_a_fetch() -> None:
    found = start_phases(ready_pod())
    assert found is not None
    assert (found.scheduling_s, found.preparing_s, found.fetch_s, found.loading_s) == (2, 98, 0, 30)
    assert (found.total_s, found.downloaded_bytes) == (130, 0)


def test_a_start_with_a_fetch() -> None:
    message = (
        '{"ok": true, "downloaded_bytes": 5, "total_bytes": 9, "seconds": 60, "num_cache_hits": 0}'
    )
    ended = {"exitCode": 0, "startedAt": at(10), "finishedAt": at(70), "message": message}
    found = start_phases(ready_pod({"name": "fetch-model", "state": {"terminated": ended}}))
    assert found is not None
    assert (found.preparing_s, found.fetch_s, found.total_s) == (38, 60, 130)
    assert found.downloaded_bytes == 5


def test_pods_that_are_not_ready_or_started_again_are_left_out() -> None:
    assert start_phases(ready_pod(restartCount=1)) is None
    waiting = ready_pod()
    waiting["status"]["conditions"][1]["status"] = "False"
    assert start_phases(waiting) is None
    assert start_phases({"metadata": {"name": "a"}}) is None
