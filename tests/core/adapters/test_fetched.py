"""Fetched versions in an adapter's status, and the versions whose files are needed."""

from typing import Any

import pytest

from penstock.core.adapters import fetched
from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.adapters.fetched import FetchedVersion

NEW = AdapterVersion("sql", "hf://org/sql@v3", Placement("All"))
OLD = AdapterVersion("sql", "hf://org/sql@v2", Placement("All"))
OLDER = AdapterVersion("sql", "hf://org/sql@v1", Placement("All"))
MOUNTED = AdapterVersion("sql", "pvc://adapters/sql", Placement("All"))


def status(*history: AdapterVersion, **more: Any) -> Any:
    return {"versions": [{"revision": each.revision, "uri": each.uri} for each in history], **more}


def test_records_are_read_as_they_are_written() -> None:
    made = [
        FetchedVersion("a", "cache", "hf://org/sql@1"),
        FetchedVersion("b", "other", "hf://org/sql@2"),
    ]
    stored = {"fetchedVersions": fetched.as_objects(made)}
    assert fetched.fetched_versions(stored) == {each.revision: each for each in made}
    assert fetched.fetched_versions({}) == {}
    assert fetched.fetched_versions({"fetchedVersions": [{"revision": "a"}]}) == {}
    assert fetched.bounded(fetched.fetched_versions(stored), ("c", "b")) == (made[1],)


def test_the_folder_of_a_fetched_version_is_the_adapters_own() -> None:
    assert NEW.engine_path == f"/adapters/cache/adapters/sql/{NEW.revision}"
    assert AdapterVersion("code", NEW.uri).engine_path != NEW.engine_path
    assert MOUNTED.engine_path == "/adapters/pvc/adapters/sql"


def test_the_versions_of_the_spec_and_in_use_are_needed_and_the_history_is_kept() -> None:
    rolling = status(OLD, OLDER, candidateRevision=OLD.revision, stableRevision=OLDER.revision)
    assert fetched.needed_versions(NEW, rolling) == (NEW, OLD, OLDER)
    assert fetched.kept_revisions(NEW, rolling) == (NEW.revision, OLD.revision, OLDER.revision)
    assert fetched.needed_versions(OLD, status(OLD, OLDER, stableRevision=OLD.revision)) == (OLD,)
    assert fetched.kept_revisions(OLDER, rolling) == (OLDER.revision, OLD.revision)
    assert fetched.needed_versions(MOUNTED, {}) == ()
    assert fetched.needed_versions(NEW, status(MOUNTED, stableRevision=MOUNTED.revision)) == (NEW,)


@pytest.mark.parametrize(
    ("stored", "held"),
    [
        ({}, None),
        (status(OLD, stableRevision=OLD.revision), OLD),
        (status(OLD, OLDER, candidateRevision=OLD.revision, stableRevision=OLDER.revision), OLD),
        (status(OLD, NEW, candidateRevision=OLD.revision, stableRevision=NEW.revision), NEW),
    ],
)
def test_what_serves_goes_on_while_the_version_of_the_spec_is_fetched(
    stored: Any, held: AdapterVersion | None
) -> None:
    assert fetched.version_to_hold(NEW, stored) == held


def test_a_version_is_available_once_its_status_says_that_it_was_fetched() -> None:
    record = fetched.as_objects([FetchedVersion(NEW.revision, "cache", "hf://org/sql@1")])
    assert not fetched.is_available(NEW, {})
    assert fetched.is_available(NEW, {"fetchedVersions": record})
    assert not fetched.is_available(OLD, {"fetchedVersions": record})
    assert fetched.is_available(MOUNTED, {})
