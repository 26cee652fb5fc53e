"""Versions of an adapter in its status: history, target of `undo`, and shares."""

from penstock.core.adapters import versions
from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.versions import MAX_VERSIONS, VersionRecord, VersionShare

FIRST, SECOND = AdapterVersion("sql", "pvc://a/1"), AdapterVersion("sql", "pvc://a/2")


def record(revision: str, at: str, stable: str = "") -> VersionRecord:
    return VersionRecord(revision, f"pvc://{revision}", at, stable)


def test_a_rollout_puts_its_version_first_and_keeps_when_it_was_stable() -> None:
    history = versions.with_start((), FIRST, "t1")
    history = versions.with_stable(history, FIRST.revision, "t2")
    history = versions.with_start(history, SECOND, "t3")
    assert [each.uri for each in history] == [SECOND.uri, FIRST.uri]
    history = versions.with_start(history, FIRST, "t4")
    assert history[0] == VersionRecord(FIRST.revision, FIRST.uri, "t4", "t2")
    assert len(history) == 2
    assert versions.with_stable(history, FIRST.revision, "t5") == history


def test_the_history_is_bounded_but_keeps_the_versions_in_use() -> None:
    history = tuple(record(str(n), f"t{n}") for n in range(MAX_VERSIONS + 3))
    kept = versions.bounded(history, ("12", None))
    assert [each.revision for each in kept] == [*map(str, range(MAX_VERSIONS - 1)), "12"]
    assert versions.bounded(kept, ()) == kept


def test_undo_returns_to_the_serving_version_or_to_the_latest_that_was_stable() -> None:
    history = (record("c", "t3"), record("b", "t2", "t2"), record("a", "t1", "t1"))

    def target(current: str, serving: str) -> str | None:
        found = versions.undo_target(history, current, serving)
        return found and found.revision

    assert target("c", "a") == "a"  # a rejected one, while an older one serves
    assert target("b", "b") == "a"
    assert target("a", "a") == "b"
    assert versions.undo_target(history[:2], "b", "b") is None  # the other one was never stable


def test_shares_and_history_survive_the_status() -> None:
    history = (record("b", "t2"), record("a", "t1", "t1"))
    status = {
        "versions": versions.as_objects(history),
        "traffic": versions.as_traffic({"a": 90, "b": 10, "gone": 0}, history),
    }
    assert versions.history_of(status) == history
    shares = versions.traffic_of(FIRST, status)
    assert [(each.version.uri, each.percent) for each in shares] == [
        ("pvc://a", 90),
        ("pvc://b", 10),
    ]


def test_without_a_status_the_version_of_the_spec_gets_all_requests() -> None:
    assert versions.traffic_of(FIRST, {}) == (VersionShare(FIRST, 100),)
    nothing = {"traffic": [{"revision": "a", "uri": "pvc://a", "percent": 0}]}
    assert versions.traffic_of(FIRST, nothing) == (VersionShare(FIRST, 100),)
