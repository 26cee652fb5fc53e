"""Versions of an adapter in its status: the history for `rollout undo`, and shares of the traffic."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.spec.service import Object

# Longest history. The versions in use are kept whatever their age.
MAX_VERSIONS = 10


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A version in the history.

    start_time: when its last rollout began. stable_time: when it had all of the traffic for the first time;
    empty if it never did. Both RFC 3339.
    """

    revision: str
    uri: str
    start_time: str
    stable_time: str = ""


@dataclass(frozen=True, slots=True)
class VersionShare:
    """Share of a version of an adapter in the requests for it. percent: more than 0."""

    version: AdapterVersion
    percent: int


History = tuple[VersionRecord, ...]


def adapter_key(namespace: str, name: str) -> tuple[str, str]:
    """Key of an adapter among the keys of services, whose names have no slash."""
    return namespace, f"lora/{name}"


def pool_key(namespace: str, name: str) -> tuple[str, str]:
    """Key of an adapter's pool among the keys of services."""
    return namespace, f"pool/{name}"


def history_of(status: Object) -> History:
    """The versions in a status, the latest rollout first; without those that cannot be read."""
    return tuple(
        VersionRecord(
            each["revision"], each["uri"], each.get("startTime", ""), each.get("stableTime") or ""
        )
        for each in status.get("versions") or []
        if "uri" in each
    )


def with_start(history: History, version: AdapterVersion, now: str) -> History:
    """The history after a rollout of a version has begun."""
    known = {each.revision: each for each in history}
    stable_time = known[version.revision].stable_time if version.revision in known else ""
    others = tuple(each for each in history if each.revision != version.revision)
    return VersionRecord(version.revision, version.uri, now, stable_time), *others


def with_stable(history: History, revision: str, now: str) -> History:
    """The history once a version has all of the traffic."""
    return tuple(
        replace(each, stable_time=now)
        if each.revision == revision and not each.stable_time
        else each
        for each in history
    )


def bounded(history: History, used: Collection[str | None]) -> History:
    """The history with at most MAX_VERSIONS versions. used: revisions that are kept."""
    unused = [each.revision for each in history if each.revision not in used]
    surplus = max(0, len(history) - MAX_VERSIONS)
    dropped = set(unused[len(unused) - surplus :]) if surplus else set()
    return tuple(each for each in history if each.revision not in dropped)


def undo_target(
    history: Iterable[VersionRecord], current: str | None, serving: str | None
) -> VersionRecord | None:
    """The version that `undo` returns to: the serving one, else the latest other one that was stable."""
    others = [each for each in history if each.stable_time and each.revision != current]
    return max(
        others,
        key=lambda each: (each.revision == serving, each.start_time),
        default=None,
    )


def stable_version(version: AdapterVersion, status: Object) -> AdapterVersion:
    """The version that has the traffic by a status. version: of the spec, without a status."""
    stable = status.get("stableRevision")
    uris = {each.revision: each.uri for each in history_of(status)} if stable else {}
    return replace(version, uri=uris[stable]) if stable in uris else version


def traffic_of(version: AdapterVersion, status: Object) -> tuple[VersionShare, ...]:
    """The versions of an adapter that get requests. version: of the spec, which gets all without a status."""
    shares = tuple(
        VersionShare(replace(version, uri=target["uri"]), target["percent"])
        for target in status.get("traffic") or []
        if target.get("percent", 0) > 0 and "uri" in target
    )
    return shares or (VersionShare(version, 100),)


def as_objects(history: History) -> list[Object]:
    """The history in the status's format."""
    return [
        {"revision": each.revision, "uri": each.uri, "startTime": each.start_time}
        | ({"stableTime": each.stable_time} if each.stable_time else {})
        for each in history
    ]


def as_traffic(shares: Mapping[str, int], history: History) -> list[Object]:
    """Shares by revision in the status's format, without versions that the history lacks."""
    uris = {each.revision: each.uri for each in history}
    return [
        {"revision": revision, "uri": uris[revision], "percent": percent}
        for revision, percent in shares.items()
        if percent > 0 and revision in uris
    ]
