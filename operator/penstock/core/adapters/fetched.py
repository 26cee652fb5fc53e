"""Versions of an adapter whose files were fetched, as its status records them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.versions import history_of
from penstock.core.spec.service import Object


@dataclass(frozen=True, slots=True)
class FetchedVersion:
    """A version in a cache. claim: of the cache. resolved_uri: what its URI meant then."""

    revision: str
    claim: str
    resolved_uri: str


Fetched = Mapping[str, FetchedVersion]  # by revision


def fetched_versions(status: Object) -> dict[str, FetchedVersion]:
    """The fetched versions in a status, without those that cannot be read."""
    return {
        each["revision"]: FetchedVersion(
            each["revision"], each["claimName"], each.get("resolvedURI", "")
        )
        for each in status.get("fetchedVersions") or []
        if "claimName" in each
    }


def as_objects(fetched: Iterable[FetchedVersion]) -> list[Object]:
    """Fetched versions in the status's format."""
    return [
        {"revision": each.revision, "claimName": each.claim, "resolvedURI": each.resolved_uri}
        for each in fetched
    ]


def bounded(fetched: Fetched, kept: Collection[str]) -> tuple[FetchedVersion, ...]:
    """The records of the revisions that are kept, in their order."""
    return tuple(fetched[revision] for revision in kept if revision in fetched)


def kept_revisions(version: AdapterVersion, status: Object) -> tuple[str, ...]:
    """Revisions whose files are not removed: of the spec, and of the history. version: of the spec."""
    others = (each.revision for each in history_of(status) if each.revision != version.revision)
    return version.revision, *others


def needed_versions(version: AdapterVersion, status: Object) -> tuple[AdapterVersion, ...]:
    """The versions whose files have to be in the cache, that of the spec first. version: of the spec.

    Those that are mounted are left out.
    """
    found = {version.revision: version} | {
        each.revision: each for each in _used_versions(version, status)
    }
    return tuple(each for each in found.values() if each.is_fetched)


def is_available(version: AdapterVersion, status: Object) -> bool:
    """Whether engines find the files of a version, as the status says."""
    return not version.is_fetched or version.revision in fetched_versions(status)


def version_to_hold(version: AdapterVersion, status: Object) -> AdapterVersion | None:
    """The version to keep while that of the spec is fetched; None if the adapter has none yet.

    That of the spec if it is in use; else the one that is being rolled out; else the one that serves.
    """
    used = {each.revision: each for each in _used_versions(version, status)}
    return used.get(version.revision) or next(iter(used.values()), None)


def _used_versions(version: AdapterVersion, status: Object) -> tuple[AdapterVersion, ...]:
    """The version that is rolled out, and the one that serves, with the placement of the spec."""
    uris = {each.revision: each.uri for each in history_of(status)}
    revisions = (status.get("candidateRevision"), status.get("stableRevision"))
    return tuple(replace(version, uri=uris[each]) for each in revisions if each in uris)
