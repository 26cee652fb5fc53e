"""Endpoint selection for one request, with waiting and retries.

A first attempt of a service with objectives selects a side (revision and cohort) by weight and waits in
that side's admission queue for a slot. All other attempts select an endpoint at once. If there is none,
they wait for a new snapshot, for the retry budget, or for a back-off before failed endpoints are tried
again. A request for an adapter goes to an endpoint of the side that has the adapter in memory.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from penstock.core.admission.requester import ANYBODY, Requester
from penstock.core.routing.charge import Ending, find_pods_of_failed_sides
from penstock.core.routing.pick import (
    Endpoint,
    NoEndpoint,
    PickedSide,
    pick_side,
)
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.core.routing.retry import needs_budget
from penstock.gateway.admission.reservation import Reservation
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.request_lifecycle.cancellation import CancellationScope
from penstock.gateway.selection.adapter_selection import AdapterSelector
from penstock.gateway.selection.failed_endpoints import FailedEndpoints
from penstock.gateway.selection.model_routing import check_available
from penstock.gateway.selection.request_hold import RequestHold
from penstock.gateway.selection.request_placement import RequestPlacement
from penstock.gateway.selection.request_wait import BUDGET_SPENT, RequestWait
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.stats.request_record import RequestRecord

# Longest time that a request waits for a retry after an engine's error response. Then that response is
# passed on.
MAX_WAIT_AFTER_ERROR_S = 1.0


@dataclass(frozen=True, slots=True)
class SelectedEndpoint:
    """An endpoint to try, with the request's slot there."""

    endpoint: Endpoint
    reservation: Reservation


class EndpointSelector:
    """Selects the endpoints that one request is sent to, one after the other.

    service: "namespace/name". key: requests with the same one stay on one side. attributes: of the request.
    tokens: the request's estimated KV cache use. adapter: the one that it is for; None: it is for the base
    model. error_of_deletion: returns the error to raise once a snapshot lacks the service or the adapter.
    hold: of a request whose service is at zero. requester: whom it counts for in admission queues.

    failed: endpoints that failed the request.
    """

    def __init__(
        self,
        state: GatewayState,
        service: str,
        record: RequestRecord,
        cancellation: CancellationScope,
        *,
        key: bytes | None,
        attributes: RequestAttributes,
        tokens: int,
        error_of_deletion: Callable[[Snapshot], RequestError],
        hold: RequestHold,
        requester: Requester = ANYBODY,
        adapter: Adapter | None = None,
    ) -> None:
        self._state = state
        self._service = service
        self._record = record
        self._key, self._attributes, self._tokens = key, attributes, tokens
        self._error_of_deletion = error_of_deletion
        self._requester = requester
        self._placement = RequestPlacement(
            state, record, requester, key=key, attributes=attributes, tokens=tokens
        )
        self._tried: set[str] = set()
        self.failed = FailedEndpoints(state.endpoints)
        self._wait, self._hold = RequestWait(state, record, cancellation), hold
        self._adapter = adapter
        self._copies: AdapterSelector | None = None
        if adapter is not None:
            self._copies = AdapterSelector(state, adapter, self.waiting)
            # Drawn once: a request that loads its adapter stays on the side of that load.
            self._draw = random.random()  # noqa: S311 - spreads load

    def note_failure(self, endpoint: Endpoint, ending: Ending, took_s: float) -> None:
        """Record that the attempt at the endpoint failed after took_s; `next` avoids it."""
        state, pod = self._state, endpoint.pod
        if self._adapter is not None and ending is Ending.NO_COPY:
            state.adapters.residency.note_absent(pod, self._adapter.engine_name)
            return
        is_denied = state.settings.allows_retries and not self._has_retry_budget
        self.failed.add(endpoint, ending, state.now(), is_retry_denied=is_denied)
        self._tried.add(pod)
        if ending is Ending.CONNECT:
            self._wait.left_s -= took_s
        if ending is Ending.ERROR:
            self._wait.left_s = min(self._wait.left_s, MAX_WAIT_AFTER_ERROR_S)

    def change_version(self) -> Adapter | None:
        """Choose another version of the adapter for the next attempt, if an engine has it in memory.

        Returns the adapter with that version; None if the version stays.
        """
        service = self._state.snapshots.current.get(self._service)
        if self._adapter is None or service is None:
            return None
        for other in self._adapter.others:
            if endpoints := self._state.adapters.resident(other, service.endpoints):
                self._adapter = other
                self._copies = AdapterSelector(self._state, other, self.waiting)
                if all(each.pod in self._tried for each in endpoints):
                    self._tried.difference_update(each.pod for each in endpoints)
                return other
        return None

    def is_serving(self, pod: str) -> bool:
        """Whether the pod is still an endpoint of the service, on a side with weight."""
        service = self._state.snapshots.current.get(self._service)
        return service is not None and any(
            e.pod == pod and service.weights.get(e.side, 0) > 0 for e in service.endpoints
        )

    async def next(self, failures: Sequence[Ending]) -> SelectedEndpoint:
        """Select the next endpoint, after waiting for one if necessary. Raises RequestError.

        failures: of the request's attempts so far.
        """
        # The last connection attempt that started in time may take its whole time-out.
        if self._wait.left_s < -self._state.settings.connect_timeout_s:
            message = "no connection to an engine could be made in time"
            raise RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="engines_failed")
        while True:
            choice = self._choose(failures)
            if isinstance(choice, NoEndpoint) and self.current_service().is_to_wake:
                await self._hold.until_engine(self)
                continue
            if isinstance(choice, NoEndpoint):
                choice = await self._wait_for_choice(choice, failures)
            if isinstance(choice, SelectedEndpoint):
                return choice
            if self._copies is not None:
                service = self.current_service()
                found = await self._copies.find(service, choice.endpoints, self._wait.left_s)
                if not found:
                    continue  # it waited, and anything may have changed
                if not self._needs_slot(service):
                    return self._place(found, random.random())  # noqa: S311 - spreads load
            reservation = await self._reserve(choice)
            if reservation is not None:
                return SelectedEndpoint(reservation.endpoint, reservation)
            # Let other tasks run, as the queue may release it at once each time.
            await asyncio.sleep(0)

    def _choose(self, failures: Sequence[Ending]) -> SelectedEndpoint | PickedSide | NoEndpoint:
        """Choose an endpoint, or the side to queue for. Raises RequestError."""
        state, service, is_retry = self._state, self.current_service(), needs_budget(failures)
        if is_retry and not self._has_retry_budget:
            return BUDGET_SPENT
        check_available(service)
        now, draw = state.now(), random.random()  # noqa: S311 - spreads load
        ejected = self._ejected(service, now, is_retry=is_retry)
        if self._copies is not None:
            return self._choose_side(service, self._copies.able(service), ejected, failures)
        if self._needs_slot(service):
            return pick_side(
                service.endpoints, service.weights, draw, ejected=ejected, key=self._key
            )
        choice = pick_side(
            service.endpoints, service.weights, draw, self._tried, ejected=ejected, key=self._key
        )
        if isinstance(choice, PickedSide):
            return self._place(choice.endpoints, choice.draw)
        if Ending.ERROR in failures:
            raise RequestError(503, choice.reason, retry_after_s=RETRY_AFTER_S)
        return choice

    def _place(self, endpoints: Sequence[Endpoint], draw: float) -> SelectedEndpoint:
        reservation = self._placement.place(endpoints, draw, self._engine_name)
        return SelectedEndpoint(reservation.endpoint, reservation)

    @property
    def _engine_name(self) -> str:
        """Name in engines of the adapter that the request is for; empty: it is for the base model."""
        return "" if self._adapter is None else self._adapter.engine_name

    def _needs_slot(self, service: Service) -> bool:
        """Whether the attempt has to queue. One without tokens, such as to tokenize, computes nothing."""
        return service.objectives is not None and not self._tried and self._tokens > 0

    @property
    def _has_retry_budget(self) -> bool:
        num_open = self._state.open_requests.count(self._service)
        return self._state.retry_budget.has_room(self._service, num_open)

    def _ejected(self, service: Service, now: float, *, is_retry: bool) -> set[str]:
        """Pods to avoid while there are others; for a retry also those that failed lately."""
        ejected = self._state.endpoints.ejected(service.endpoints, now)
        if not is_retry:
            return ejected
        ejected |= self._state.endpoints.suspects
        return ejected | find_pods_of_failed_sides(
            self.failed.sides, service.endpoints, service.weights, ejected | self._tried
        )

    def _choose_side(
        self,
        service: Service,
        able: Sequence[Endpoint],
        ejected: set[str],
        failures: Sequence[Ending],
    ) -> PickedSide | NoEndpoint:
        """Choose the side whose engines are to answer a request for an adapter.

        able: endpoints that take adapters. Raises RequestError.
        """
        choice = pick_side(
            able, service.weights, self._draw, self._tried, ejected=ejected, key=self._key
        )
        if isinstance(choice, NoEndpoint) and Ending.ERROR in failures:
            raise RequestError(503, choice.reason, retry_after_s=RETRY_AFTER_S)
        return choice

    async def _wait_for_choice(
        self, choice: NoEndpoint, failures: Sequence[Ending]
    ) -> SelectedEndpoint | PickedSide:
        """Wait until there is something to choose, and choose it. Raises RequestError."""
        choose = partial(self._choose, failures)
        with self.waiting():
            return await self._wait.until(choose, choice, self.wait_for_change, self._tried.clear)

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Wait for a change of the service or the adapter. Returns False if there is none in the time."""
        adapter = "" if self._adapter is None else self._adapter.key
        wait = self._state.snapshots.wait_for_change
        return await wait(self._service, timeout_s, adapter=adapter)

    async def _reserve(self, picked: PickedSide) -> Reservation | None:
        """Wait in the side's admission queue. Returns None if it is closed. Raises RequestError."""
        queue = self._state.admission_queues.get(self._service, picked.side)
        if queue is None:
            return None
        record, copies, waiting = self._record, self._copies, self.waiting(is_queued=True)
        reservation = await queue.reserve(
            record.arrived_s,
            record.prompt_tokens,
            self._tokens,
            self._wait.left_s,
            waiting if copies is None else copies.waiting_for_room(waiting),
            self._attributes,
            self._engine_name,
            self._requester,
            self._placement.home,
        )
        if reservation is not None:
            self._state.endpoints.note_selected(reservation.endpoint.pod, self._state.now())
        return reservation

    def current_service(self) -> Service:
        """The service whose engines are to answer. Raises RequestError if it or the adapter was deleted."""
        snapshot, adapter = self._state.snapshots.current, self._adapter
        if adapter is not None:
            if (current := snapshot.get_adapter(adapter.key)) is None:
                raise self._error_of_deletion(snapshot)
            self._follow(adapter, current.service)
        if (service := snapshot.get(self._service)) is None:
            raise self._error_of_deletion(snapshot)
        return service

    def _follow(self, adapter: Adapter, service: str) -> None:
        """Move to the pool that serves the adapter now, if that changed while the request waited."""
        if service == self._service:
            return
        self._service, self._adapter = service, replace(adapter, service=service)
        self._copies = AdapterSelector(self._state, self._adapter, self.waiting)
        self._tried.clear()

    def waiting(
        self, retry_after_s: int | None = None, *, is_queued: bool = False
    ) -> AbstractContextManager[None]:
        """Count the request as waiting while the block runs (see `RequestWait.counted`)."""
        adapter = "" if self._adapter is None else self._adapter.name
        return self._wait.counted(
            self._service, adapter, retry_after_s=retry_after_s, is_queued=is_queued
        )
