"""Endpoints that failed one request, and which of their failures count for outlier ejection.

An engine that fails a request may be at fault, or the request itself. It is the engine if another one answers
the request. Nobody knows if several engines fail it, if the answer is no evidence (`shows_answerable`), or if
the retry is not answered: no engine was ready for it in time, it was not allowed in time, or the client left.
Failures that nobody can tell are not counted.
"""

import asyncio
from typing import Self

from penstock.core.routing.charge import CHARGES, Ending
from penstock.core.routing.pick import Endpoint, Side
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.state.endpoint_state import EndpointStates


class FailedEndpoints:
    """Failures of one request at endpoints, as a context manager around its attempts.

    A failure is counted when it happens, so that a failing engine is ejected soon, and taken back at the end
    if nobody can tell. One whose retry is denied is counted only if another engine answers later.
    """

    def __init__(self, endpoints: EndpointStates) -> None:
        self._endpoints = endpoints
        self._failed: dict[str, Side] = {}  # by pod; without those that never got the request
        self._counted: list[str] = []  # a pod for each failure
        self._uncounted: list[tuple[str, Ending]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        has_no_engine = isinstance(error, RequestError)
        is_cancelled = isinstance(error, asyncio.CancelledError)
        if len(self._failed) > 1 or has_no_engine or is_cancelled:
            self.excuse()

    @property
    def sides(self) -> set[Side]:
        """Sides with an endpoint that failed the request."""
        return set(self._failed.values())

    def add(self, endpoint: Endpoint, ending: Ending, now: float, *, is_retry_denied: bool) -> None:
        """Record that the attempt at an endpoint failed.

        is_retry_denied: whether other requests have used up the retry budget.
        """
        if CHARGES[ending].engine is None:
            return
        if ending is Ending.CONNECT:  # whatever the request
            self._endpoints.charge(endpoint.pod, ending, now)
            return
        self._failed[endpoint.pod] = endpoint.side
        if is_retry_denied:
            self._uncounted.append((endpoint.pod, ending))
        else:
            self._endpoints.charge(endpoint.pod, ending, now)
            self._counted.append(endpoint.pod)

    def confirm(self, now: float) -> None:
        """Record that an engine answered the request, so that all failures are the engines' fault."""
        for pod, ending in self._uncounted:
            self._endpoints.charge(pod, ending, now)
        self._uncounted.clear()
        self._counted.clear()

    def excuse(self) -> None:
        """Take back all failures so far, as nobody can tell whether the engines were at fault."""
        self._endpoints.excuse_failures(self._counted)
        self._uncounted.clear()
        self._counted.clear()
