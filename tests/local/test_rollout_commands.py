"""`penstock rollout`: the status that it shows, what it refuses, and outages of the API server."""

import json
from typing import Any

import pytest
from tests.local.api_server import STABLE, STALLED, Answer, ApiServer, penstock

from penstock.cli.rollout import status as rollout_status
from penstock.core.spec.service import REVISION_LABEL


def history(*revisions: str) -> dict[str, Any]:
    """The API server's list of the service's ControllerRevisions, none of which was ever stable."""
    entries = [
        {
            "metadata": {
                "name": f"chat-{revision}", "labels": {REVISION_LABEL: revision},
                "uid": "r", "ownerReferences": [{"uid": "u"}],
            },
            "revision": number,
        }
        for number, revision in enumerate(revisions, 1)
    ]  # fmt: skip
    found: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "ControllerRevisionList"}
    return found | {"metadata": {"resourceVersion": "1"}, "items": entries}


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ((), "the history of chat has no other revision"),
        (
            ("bbb", "ccc"),
            "no other revision of chat is known to have been stable: use --to with one of ccc, bbb",
        ),
    ],
)
def test_undo_without_a_stable_revision_to_restore_says_what_there_is(
    others: tuple[str, ...], said: str, api: ApiServer
) -> None:
    api.answers = [(200, STABLE), (200, history(*others, "aaa"))]
    outcome = penstock("rollout", "undo", "chat")
    assert outcome.exit_code == 1
    assert outcome.stderr == f"penstock rollout: {said}\n"


def test_an_unknown_revision_is_refused_with_a_list_of_the_known_ones(api: ApiServer) -> None:
    api.answers = [(200, STABLE), (200, history("aaa"))]
    outcome = penstock("rollout", "undo", "chat", "--to", "bbb")
    assert outcome.exit_code == 1
    assert "the history of chat has no revision bbb; it has: aaa" in outcome.stderr


@pytest.mark.parametrize(
    ("strategy", "phase", "said"),
    [
        ("Rolling", "Replacing", "--watch), or abort it first"),
        ("Canary", "Judging", "--watch), or promote or abort it first"),
    ],
)
def test_a_refused_restart_names_the_commands_that_the_phase_takes(
    strategy: str, phase: str, said: str, api: ApiServer
) -> None:
    service = json.loads(json.dumps(STABLE))
    service["status"]["rollout"] |= {"strategy": strategy, "phase": phase, "revision": "bbb"}
    api.answers = [(200, service)]
    outcome = penstock("rollout", "restart", "chat")
    assert outcome.exit_code == 1
    assert outcome.stderr.strip().endswith(said)


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        (
            "Discarding",
            "cannot promote chat, which is Discarding: the new revision's pods finish their streams and "
            "terminate",
        ),
        (
            "Rejected",
            "cannot promote chat, which is Rejected: like Stable, with a revision that is not retried; "
            "possible now: resume",
        ),
        ("Stable", "cannot promote chat, which is Stable: no rollout is in progress"),
    ],
)
def test_a_refused_command_says_what_the_phase_does(phase: str, said: str, api: ApiServer) -> None:
    service = json.loads(json.dumps(STABLE))
    service["status"]["rollout"]["phase"] = phase
    api.answers = [(200, service)]
    outcome = penstock("rollout", "promote", "psvc/chat")
    assert outcome.exit_code == 1
    assert outcome.stderr == f"penstock rollout: {said}\n"


def test_a_refused_resume_names_the_command_that_checks_the_model_again(api: ApiServer) -> None:
    service = json.loads(json.dumps(STABLE))
    service["status"]["rollout"] |= {"strategy": "Rolling", "phase": "Starting", "revision": "bbb"}
    api.answers = [(200, service)]
    outcome = penstock("rollout", "resume", "chat")
    assert outcome.exit_code == 1
    assert outcome.stderr == (
        "penstock rollout: cannot resume chat, which is Starting: pods of the new revision start; no "
        "traffic; to have its model checked again, run: kubectl penstock rollout restart chat\n"
    )


UNAVAILABLE: Answer = (503, {"message": "etcd is away"})


def test_a_watch_outlasts_short_outages(api: ApiServer) -> None:
    api.answers = [
        UNAVAILABLE,
        (200, STABLE),
        (429, {"message": "slow"}),
        UNAVAILABLE,
        (200, STABLE),
    ]
    outcome = penstock("rollout", "status", "chat", "--watch")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stderr.count("trying again") == 2  # once for each outage
    assert len(api.paths) == 5
    assert "all [/good] and [well]" in outcome.stdout


def test_an_outage_has_another_exit_code_than_a_failed_rollout(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI distinguishes them by the exit code."""
    monkeypatch.setattr(rollout_status, "RETRY_FOR_S", 0.05)
    api.answers = [(200, STABLE), UNAVAILABLE]
    assert penstock("rollout", "status", "chat", "--watch").exit_code == 2
    rejected = json.loads(json.dumps(STABLE))
    rejected["status"]["rollout"]["phase"] = "Rejected"
    rejected["status"]["conditions"] = STALLED
    api.answers = [(200, rejected)]
    assert penstock("rollout", "status", "chat", "--watch").exit_code == 1


def test_a_watch_fails_at_once_if_the_spec_is_refused(api: ApiServer) -> None:
    """The phase is that of the last accepted spec, whose revision goes on serving."""
    refused = json.loads(json.dumps(STABLE))
    refused["status"]["conditions"] = STALLED
    api.answers = [(200, refused)]
    outcome = penstock("rollout", "status", "chat", "--watch")
    assert outcome.exit_code == 1
    assert "  stalled: not here" in outcome.stdout


def test_a_watch_fails_if_the_service_does_not_take_an_adapter(api: ApiServer) -> None:
    """No version of such an adapter is rolled out, so its status has no phase."""
    status = {"observedGeneration": 1, "conditions": STALLED}
    api.answers = [(200, STABLE | {"status": status})]
    outcome = penstock("rollout", "status", "lora/sql", "--watch")
    assert outcome.exit_code == 1
    assert outcome.stdout.splitlines() == [
        "lora/sql: no revision has been rolled out yet",
        "  stalled: not here",
    ]


@pytest.mark.parametrize(
    ("phase", "is_shown"), [("Judging", True), ("Paused", False), ("Stable", False)]
)
def test_missing_requests_are_named_only_while_a_canary_waits_for_them(
    phase: str, is_shown: bool, api: ApiServer
) -> None:
    body = json.loads(json.dumps(STABLE))
    evidence = {"metric": "TTFT", "canarySamples": 0}
    body["status"]["rollout"] |= {"phase": phase, "evidence": [evidence]}
    api.answers = [(200, body)]
    shown = penstock("rollout", "status", "chat").stdout
    assert ("the canary has not answered a request yet" in shown) == is_shown


@pytest.mark.parametrize(
    ("changed", "stable", "line"),
    [
        (
            {
                "phase": "Rejected",
                "rejected": {"revision": "bbb", "at": "2026-01-01T00:00:00Z", "reason": "bad"},
            },
            "aaa",
            "chat: revision bbb was rejected at 2026-01-01T00:00:00Z: bad; revision aaa serves",
        ),
        ({"phase": "Starting", "strategy": "Recreate"}, None, "chat: first revision aaa: Starting"),
        (
            {"phase": "Waiting", "strategy": "BlueGreen"},
            "bbb",
            "  waiting for: kubectl penstock rollout promote or abort chat",
        ),
        (
            {"phase": "Paused"},
            "bbb",
            "  waiting for: kubectl penstock rollout promote or abort or resume chat",
        ),
    ],
)
def test_status_names_the_revision_and_what_is_awaited(
    changed: dict[str, Any], stable: str | None, line: str, api: ApiServer
) -> None:
    body = json.loads(json.dumps(STABLE))
    body["status"]["stableRevision"] = stable
    body["status"]["rollout"] |= changed
    api.answers = [(200, body)]
    # The variable COLUMNS wraps the line.
    shown = penstock("rollout", "status", "chat").stdout.split()
    assert " ".join(line.split()) in " ".join(shown)


@pytest.mark.parametrize(("code", "exit_code"), [(403, 1), (404, 1), (503, 2)])
def test_without_watch_nothing_is_retried(code: int, exit_code: int, api: ApiServer) -> None:
    api.answers = [(code, {"message": "no"})]
    assert penstock("rollout", "status", "chat").exit_code == exit_code
    assert len(api.paths) == 1


def test_a_watch_that_is_not_allowed_ends_at_once(api: ApiServer) -> None:
    api.answers = [(403, {"message": "no"})]
    assert penstock("rollout", "status", "chat", "--watch").exit_code == 1
    assert len(api.paths) == 1


@pytest.mark.parametrize(
    ("spec", "how"),
    [
        ({"rollout": None}, "first"),
        ({"rollout": {"strategy": "Canary"}}, "first"),
        ({"rollout": {"strategy": "Sideways"}}, "Recreate of"),
    ],
)
def test_a_spec_of_another_version_does_not_hide_the_status(
    spec: dict[str, Any], how: str, api: ApiServer
) -> None:
    """It may have a field without a value, or a value that this version refuses."""
    body = json.loads(json.dumps(STABLE))
    body["spec"] |= spec
    body["status"]["stableRevision"] = None
    body["status"]["rollout"] |= {"phase": "Starting", "strategy": "Recreate"}
    api.answers = [(200, body)]
    outcome = penstock("rollout", "status", "chat")
    assert (outcome.exit_code, outcome.exception) == (0, None)
    assert f"chat: {how} revision aaa: Starting" in " ".join(outcome.stdout.split())
