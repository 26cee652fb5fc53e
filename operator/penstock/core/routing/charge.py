"""Charges for the endings of requests: to the engine, its revision, the adapter's version, or the service.

Each way in which a request, or one attempt of it, can end has a row in CHARGES. Outlier ejection, the
statistics of revisions and services, and retries all go by that row. An ending that only the client, a
route or the gateway has caused charges no engine, no revision and no version.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from penstock.core.routing.pick import Endpoint, Side

ABOUT_THE_REQUEST = frozenset({501, 504, 505})


class Ending(StrEnum):
    """A way in which a request, or one attempt of it at an engine, ends."""

    # Endings of an attempt before anything of it reached the client: another attempt may follow.
    CONNECT = "connect"  # no connection could be opened
    UNSENT = "unsent"  # the connection broke before the whole request was written
    RESET = "reset"  # the connection broke, or the response ended, before its first byte
    INVALID = "invalid"  # the response breaks the rules of HTTP
    UNAVAILABLE = "unavailable"  # 502, 503: draining, loading, full
    ERROR = "error"  # 500, other 5xx, or a stream that begins with such an error event
    NO_COPY = "no_copy"  # 404 of an adapter that the engine had a moment before
    COPY_UNAVAILABLE = "copy_unavailable"  # 502, 503 to a request for an adapter
    UNREADY = "unready"  # the engine's pod became unready before the first byte
    # Endings of a request that was sent to an engine.
    ANSWERED = "answered"
    REFUSED = "refused"  # 4xx, by the engine or the gateway
    UNSUPPORTED = "unsupported"  # 501, 504, 505 of the engine
    NO_FIRST_BYTE = "no_first_byte"  # of a stream, within its time limit
    SILENT = "silent"  # no further chunk within its time limit
    LATE = "late"  # no first byte of a stream in time, so that it goes to a fallback
    TRUNCATED = "truncated"  # the response broke off after its first byte
    ERROR_EVENT = "error_event"  # after the first byte, of a code whose status is charged
    TOTAL_TIMEOUT = "total_timeout"  # of the gateway
    # Endings of a request that may not have been sent to an engine.
    CLIENT_LEFT = "client_left"
    CLIENT_STALLED = "client_stalled"  # it did not read its response
    ROUTE_TIMEOUT = "route_timeout"  # of the ModelRoute
    ADAPTER_REFUSED = "adapter_refused"  # engines refuse to load the adapter
    # No engine was ready or had room in time, or a limit of the gateway was reached.
    NO_ENGINE = "no_engine"
    SHUTDOWN = "shutdown"  # of the gateway
    GATEWAY_FAILED = "gateway_failed"  # by a defect of its own


# What an ending counts as for the outlier ejection of its engine (see `outliers`); None: nothing.
EngineCharge = Literal["Failure", "Unreachable", "BrokeOff"] | None
# Whether it is an error of the engine's revision. Always: of the engine that got the request last. Blamed:
# see `find_blamed_endpoints`. BlamedUnlessAnswered: the same, but nothing if another engine answered, as
# connections are lost with any revision.
RevisionCharge = Literal["Never", "Blamed", "BlamedUnlessAnswered", "Always"]
# Whether it is an error of the adapter's version that the request is for. Always: of the last one that it was
# sent to. Blamed: see `is_version_blamed`.
VersionCharge = Literal["Never", "Blamed", "Always"]
# What the request counts as in the statistics of its service, if it ends so; None: nothing.
ServiceCharge = Literal["Ended", "Failed", "Shed"] | None
# Retries of an attempt that ended so. Once: it fails in the same way if the request is the cause. Several:
# up to the gateway's limit. Moved: the same, but not counted by the retry budget, since the service has the
# load already. Waiting: as long as the request may wait, since no engine had any work.
Retry = Literal["Never", "Once", "Several", "Moved", "Waiting"]


@dataclass(frozen=True, slots=True)
class Charge:
    """Consequences of an ending for the engine, its revision, the adapter's version and the service.

    retry: whether the gateway sends the request again. may_client_repeat: whether a client may, if the last
    attempt ended so.
    """

    engine: EngineCharge
    revision: RevisionCharge
    version: VersionCharge
    service: ServiceCharge
    retry: Retry = "Never"
    may_client_repeat: bool = False

    @property
    def charges_copy(self) -> bool:
        """Whether a mirrored copy that ends so is an error of its engine's revision. It has one attempt."""
        return self.revision in ("Blamed", "Always")


CHARGES: Mapping[Ending, Charge] = {
    Ending.CONNECT: Charge("Unreachable", "BlamedUnlessAnswered", "Never", "Failed", "Waiting"),
    Ending.UNSENT: Charge("Failure", "Blamed", "Blamed", "Failed", "Several"),
    Ending.RESET: Charge("Failure", "Blamed", "Blamed", "Failed", "Once"),
    Ending.INVALID: Charge("Failure", "Blamed", "Blamed", "Failed", "Once"),
    Ending.UNAVAILABLE: Charge(
        "Failure", "Blamed", "Blamed", "Failed", "Several", may_client_repeat=True
    ),
    Ending.ERROR: Charge("Failure", "Blamed", "Blamed", "Failed", "Once"),
    Ending.NO_COPY: Charge(None, "Never", "Never", "Failed", "Several", may_client_repeat=True),
    # The version may be at fault, as one whose output is NaN. An engine without room serves both versions.
    Ending.COPY_UNAVAILABLE: Charge(
        None, "Never", "Blamed", "Failed", "Several", may_client_repeat=True
    ),
    Ending.UNREADY: Charge(None, "Never", "Never", "Failed", "Moved", may_client_repeat=True),
    Ending.ANSWERED: Charge(None, "Never", "Never", "Ended"),
    Ending.REFUSED: Charge(None, "Never", "Never", None),
    Ending.UNSUPPORTED: Charge(None, "Never", "Never", None),
    Ending.NO_FIRST_BYTE: Charge("Failure", "Always", "Always", "Failed"),
    # An engine that hangs has nothing in flight once its requests have gone to fallbacks, so that it would
    # get most of the next ones.
    Ending.LATE: Charge("Failure", "Never", "Never", "Failed"),
    Ending.SILENT: Charge("BrokeOff", "Always", "Always", "Failed"),
    Ending.TRUNCATED: Charge("BrokeOff", "Always", "Always", "Failed"),
    Ending.ERROR_EVENT: Charge("BrokeOff", "Always", "Always", "Failed"),
    # A slow client may have used up the time, or one that asks for a very long answer.
    Ending.TOTAL_TIMEOUT: Charge(None, "Never", "Never", "Failed"),
    Ending.CLIENT_LEFT: Charge(None, "Never", "Never", None),
    Ending.CLIENT_STALLED: Charge(None, "Never", "Never", None),
    Ending.ROUTE_TIMEOUT: Charge(None, "Never", "Never", None),
    Ending.ADAPTER_REFUSED: Charge(None, "Never", "Always", None),
    Ending.NO_ENGINE: Charge(None, "Never", "Never", "Shed"),
    Ending.SHUTDOWN: Charge(None, "Never", "Never", "Failed"),
    Ending.GATEWAY_FAILED: Charge(None, "Never", "Never", "Failed"),
}


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt of a request that failed before anything of it reached the client."""

    endpoint: Endpoint
    ending: Ending


def ending_of(status: int) -> Ending:
    """The ending that an engine's HTTP status stands for."""
    if status < 400:
        return Ending.ANSWERED
    if status < 500:
        return Ending.REFUSED
    if status in ABOUT_THE_REQUEST:
        return Ending.UNSUPPORTED
    return Ending.UNAVAILABLE if status in (502, 503) else Ending.ERROR


def shows_answerable(ending: Ending | None) -> bool:
    """Whether a response shows that an engine could answer the request.

    501, 504 and 505 do not show that the engines that failed the request before were at fault.
    ending: that of the response; None: unknown.
    """
    return ending is not Ending.UNSUPPORTED


def ending_of_timeout(*, has_response: bool, is_total: bool, is_of_route: bool) -> Ending:
    """The ending that a time limit of a request at an engine stands for.

    has_response: whether the first byte of a stream had arrived. is_total: whether the limit was that of the
    whole request, which alone limits an answer that is no stream. is_of_route: whether it was that of a
    ModelRoute.
    """
    if is_of_route:
        return Ending.ROUTE_TIMEOUT
    if is_total:
        return Ending.TOTAL_TIMEOUT
    return Ending.SILENT if has_response else Ending.NO_FIRST_BYTE


def find_blamed_endpoints(
    failed: Iterable[FailedAttempt],
    serving: Collection[Side],
    *,
    is_answered: bool,
    allows_retries: bool,
) -> list[Endpoint]:
    """The engines whose revisions are charged for failed attempts of one request.

    If another engine answered, the request was not the cause. If engines of several sides failed, it may be.
    If a side with traffic was not tried, nobody knows. Nobody is charged in these two cases. Without retries
    no side is ever tried after another one. Then all are charged, as no revision would be otherwise.

    serving: sides with engines and traffic. is_answered: whether an engine answered in the end.
    allows_retries: whether the gateway retries failed requests at all.
    """
    charged = [(each.endpoint, CHARGES[each.ending].revision) for each in failed]
    blamed = [endpoint for endpoint, charge in charged if charge == "Blamed"]
    if is_answered:
        return blamed
    failing = [
        endpoint for endpoint, charge in charged if charge in ("Blamed", "BlamedUnlessAnswered")
    ]
    if len({endpoint.side for endpoint in failing}.union(serving)) == 1:
        return failing
    return [] if allows_retries else blamed


def is_version_blamed(ending: Ending, *, is_answered: bool, allows_retries: bool) -> bool:
    """Whether a version of an adapter is charged for a failed attempt, while another one has traffic too.

    As `find_blamed_endpoints`, with versions in place of sides: if no engine answered, the request failed
    with both versions, or one was not tried.
    """
    return CHARGES[ending].version == "Blamed" and (is_answered or not allows_retries)


def find_pods_of_failed_sides(
    failed: Collection[Side],
    endpoints: Sequence[Endpoint],
    weights: Mapping[Side, int],
    exclude: Collection[str],
) -> set[str]:
    """The pods of sides that failed a request; none if no other side has a pod left to retry it on.

    An engine of another side shows whether the request itself is at fault, or the revision. exclude: pods
    that are not left.
    """
    others = [e for e in endpoints if e.side not in failed and e.pod not in exclude]
    if not any(weights.get(e.side, 0) > 0 for e in others):
        return set()
    return {e.pod for e in endpoints if e.side in failed}
