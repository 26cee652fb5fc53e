"""Sends one request to endpoints, one attempt after another, until one of them responds.

Nothing is sent to the client before the first byte of an engine's response, so another endpoint may be
tried until then: `core.routing.retry` says when. An engine's own 500 is kept until another endpoint
answers: it can be passed on if all fail.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.core.routing.apis import BACKGROUND
from penstock.core.routing.charge import CHARGES, Ending, ending_of, shows_answerable
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.retry import may_retry, needs_budget, tries_other_version
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.apis.request import InferenceRequest
from penstock.gateway.apis.response_id import name_response
from penstock.gateway.mirroring.mirrored_request import MirroredRequest
from penstock.gateway.proxy.relay import Relay
from penstock.gateway.proxy.target_attempts import TargetAttempts
from penstock.gateway.request_lifecycle.cancellation import CancellationScope
from penstock.gateway.request_lifecycle.timeline import RequestPhase
from penstock.gateway.selection.adapter_answers import AdapterAnswers
from penstock.gateway.selection.endpoint_selection import EndpointSelector, SelectedEndpoint
from penstock.gateway.selection.routing_target import RoutingTarget
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.stats.request_record import RequestRecord
from penstock.gateway.upstream.response import UpstreamResponse
from penstock.gateway.upstream.unanswered import EngineLost
from penstock.gateway.upstream.upstream import AttemptFailed, UpstreamRequest


class EngineError(RequestError):
    """No engine answered the request, and one of them sent an error response, which can be passed on."""

    def __init__(self, response: UpstreamResponse) -> None:
        message = "an engine answered with an error, and no other one answered"
        super().__init__(502, message, reason="engines_failed")
        self.response = response


class Attempts(TargetAttempts):
    """The attempts of one request at the engines of one target, and the relay of the response."""

    _error: UpstreamResponse | None = None  # of an engine, held in case no other engine answers

    def close(self) -> None:
        """Free the error response that is held."""
        if self._error is not None:
            self._error.close()
            self._error = None

    async def run(
        self,
        request: InferenceRequest,
        outgoing: UpstreamRequest,
        target: RoutingTarget,
        selector: EndpointSelector,
        cancellation: CancellationScope,
        record: RequestRecord,
    ) -> None:
        """Try endpoints until one responds, or `may_retry` allows no further attempt.

        outgoing: the request in the form that engines get. Raises RequestError, RequestCancelled.
        """
        failures = self.failures
        other: Adapter | None = None
        answers = None if target.adapter is None else AdapterAnswers(self._state, target.adapter)
        with selector.failed:
            while (selected := await self._select(selector, failures)) is not None:
                endpoint, started_s = selected.endpoint, self._state.now()
                self._note_version(other, record)
                with contextlib.ExitStack() as at_endpoint:
                    at_endpoint.enter_context(self._in_flight(selected, record))
                    result = await self._attempt(endpoint, outgoing, cancellation, failures)
                    if answers is not None:
                        result = await answers.interpret(result, endpoint)
                    if isinstance(result, UpstreamResponse):
                        self._note_health(endpoint.pod, result, selector)
                        self._mirror(request, target, outgoing)
                        relay = self._new_relay(result, endpoint, at_endpoint, record, request)
                        del request, outgoing
                        await relay.run(cancellation)
                        return
                    self._note_failure(endpoint, result, started_s, selector, record)
                failures.append(result.ending)
                if (changed := self._change_version(selector, failures)) is not None:
                    request = request.with_model(changed.engine_name)
                    outgoing = replace(outgoing, body=request.body)
                    other, answers = changed, AdapterAnswers(self._state, changed)
        self._give_up(failures[-1], record)

    def _change_version(
        self, selector: EndpointSelector, failures: Sequence[Ending]
    ) -> Adapter | None:
        """Choose another version of the adapter for the next attempt.

        Returns the adapter with that version; None if the version stays. failures: of the attempts so far.
        """
        if not tries_other_version(failures, self._state.settings.max_attempts):
            return None
        return selector.change_version()

    def _note_version(self, adapter: Adapter | None, record: RequestRecord) -> None:
        """Count the request for another version of its adapter, now that an engine gets it.

        adapter: with that version; None if the version has stayed.
        """
        if adapter is not None and record.adapter is not None:
            self._telemetry.line.adapter = adapter.engine_name
            record.adapter.change_version(self._state.stats.adapters.get(adapter))

    async def _select(
        self, selector: EndpointSelector, failures: Sequence[Ending]
    ) -> SelectedEndpoint | None:
        """Select the endpoint of the next attempt. Raises RequestError.

        Returns None if `may_retry` allows no further attempt, or if there is no endpoint and an engine's own
        error response is passed on instead. failures: of the attempts so far.
        """
        if not may_retry(failures, self._state.settings.max_attempts):
            return None
        self._telemetry.timeline.enter(RequestPhase.WAIT)
        try:
            selected = await selector.next(failures)
        except RequestError:
            if Ending.ERROR in failures:
                return None
            raise
        self.endpoint = selected.endpoint
        self._client.revision = selected.endpoint.revision
        self._telemetry.note_endpoint(selected.endpoint, failures[-1] if failures else None)
        return selected

    async def _attempt(
        self,
        endpoint: Endpoint,
        outgoing: UpstreamRequest,
        cancellation: CancellationScope,
        failures: Sequence[Ending],
    ) -> UpstreamResponse | AttemptFailed:
        telemetry, budget = self._telemetry, self._state.retry_budget
        service, is_retry = telemetry.line.service, needs_budget(failures)
        outgoing = telemetry.start_attempt(outgoing, endpoint)
        if outgoing.api.stores:
            outgoing = replace(
                outgoing, body=name_response(outgoing.body, endpoint.pod, self._tenant)
            )
        with budget.hold(service) if is_retry else contextlib.nullcontext():
            try:
                async with self._state.unanswered.watch(service, endpoint.pod):
                    return await self._state.upstream.send(
                        f"http://{endpoint.address}",
                        outgoing,
                        cancellation,
                        telemetry.timeline,
                        service,
                    )
            except AttemptFailed as failed:
                result = failed
            except EngineLost:
                result = AttemptFailed(Ending.UNREADY)
            telemetry.fail_attempt(result.ending)
            return result

    def _new_relay(
        self,
        response: UpstreamResponse,
        endpoint: Endpoint,
        at_endpoint: contextlib.ExitStack,
        record: RequestRecord,
        request: InferenceRequest,
    ) -> Relay:
        """The relay of an endpoint's response. The request's body is not needed any more.

        at_endpoint: counts the request as in flight until it is closed.
        """
        self._note_response()
        self.close()
        line = self._telemetry.line
        self.relay = Relay(
            self._state, line.service, endpoint, response, self._client, record, line.trace_id,
            free_endpoint=at_endpoint.close, hides_usage=request.hides_usage,
        )  # fmt: skip
        self._telemetry.timeline.enter(RequestPhase.STREAM)
        return self.relay

    def _note_health(
        self, pod: str, response: UpstreamResponse, selector: EndpointSelector
    ) -> None:
        """Update the health of endpoints by the response that is passed on."""
        if not shows_answerable(ending_of(response.status)):
            selector.failed.excuse()
            return
        selector.failed.confirm(self._state.now())
        if response.is_error:
            return
        if response.source is None:
            self._state.endpoints.note_response_complete(pod)
        else:
            self._state.endpoints.note_response_start(pod)

    def _note_failure(
        self,
        endpoint: Endpoint,
        failed: AttemptFailed,
        started_s: float,
        selector: EndpointSelector,
        record: RequestRecord,
    ) -> None:
        """Record a failed attempt, and hold the engine's error response in case no other engine answers."""
        selector.note_failure(endpoint, failed.ending, self._state.now() - started_s)
        is_serving = selector.is_serving(endpoint.pod)
        record.end.note_failed_attempt(endpoint, failed.ending, is_serving=is_serving)
        if record.adapter is not None and is_serving:
            record.adapter.note_failed_attempt(failed.ending)
        if failed.ending is Ending.ERROR and failed.response is not None:
            self.close()
            self._error = failed.response

    def _give_up(self, last: Ending, record: RequestRecord) -> None:
        """Raise the error of a request that no engine answers. last: ending of the last attempt."""
        if self._error is not None:
            record.end.ending = last
            raise EngineError(self._error)
        if CHARGES[last].may_client_repeat:
            message = "no engine accepts requests"
            if last is Ending.NO_COPY:
                message = "the engines that were tried have unloaded the adapter"
            raise RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="engines_failed")
        raise RequestError(502, "the engines that were tried did not answer")

    def _mirror(
        self, request: InferenceRequest, target: RoutingTarget, outgoing: UpstreamRequest
    ) -> None:
        """Schedule the mirrored copies of the request, after what the event loop has to do already.

        None of a request that continues a stored response, which other engines do not have, and none of one
        in the background, whose response would have to be stored.
        """
        is_of_its_engine = request.previous_response or request.api is BACKGROUND
        if is_of_its_engine or not (target.mirrors or target.rollout_mirror):
            return
        loop = asyncio.get_running_loop()
        headers = self._telemetry.headers_for_copy(outgoing.headers)
        copy = MirroredRequest(request, outgoing.path, headers, target.timeout_s)
        sender, snapshot = self._state.mirror, self._state.snapshots.current
        for mirror in target.mirrors:
            loop.call_soon(sender.send_for_route, copy, mirror, snapshot, target.service.namespace)
        if target.rollout_mirror is not None:
            stats = self._state.stats.get(target.service.key)
            loop.call_soon(
                sender.send_for_rollout, copy, target.rollout_mirror, target.service, stats
            )

    @contextlib.contextmanager
    def _in_flight(self, selected: SelectedEndpoint, record: RequestRecord) -> Iterator[None]:
        """Count the request as in flight at the endpoint while the block runs."""
        in_flight = self._state.metrics.in_flight
        gauge = in_flight.labels(self._telemetry.line.service, selected.endpoint.revision)
        gauge.inc()
        try:
            with record.in_flight(selected.endpoint, selected.reservation):
                yield
        finally:
            gauge.dec()
