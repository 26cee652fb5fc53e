"""Sends one request to the provider of an external model, at most once, and relays the response."""

import asyncio
from collections.abc import Mapping

from multidict import CIMultiDict

from penstock.clients.machine.clock import unix_time
from penstock.core.providers.external_model import ExternalModel
from penstock.core.providers.external_urls import is_allowed_url
from penstock.core.routing.charge import Ending
from penstock.core.routing.pick import Endpoint
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.apis.model_field import add_usage_option
from penstock.gateway.apis.request import InferenceRequest
from penstock.gateway.http.headers import RawHeaders, header_text
from penstock.gateway.proxy.relay import Relay
from penstock.gateway.proxy.target_attempts import TargetAttempts
from penstock.gateway.request_lifecycle.cancellation import CancellationScope
from penstock.gateway.request_lifecycle.timeline import RequestPhase
from penstock.gateway.stats.request_record import RequestRecord
from penstock.gateway.upstream.response import UpstreamResponse
from penstock.gateway.upstream.upstream import AttemptFailed, UpstreamRequest

# Headers of the client that the provider gets, besides those that the gateway makes itself.
CLIENT_HEADERS = ("accept", "anthropic-version", "anthropic-beta")
ANTHROPIC_VERSION = "2023-06-01"  # of a client that names none
# Headers of the provider that the client gets. Others are about the provider's account.
PROVIDER_HEADERS = (b"content-type", b"cache-control")
# Statuses about the gateway's key or account at the provider, which no client can change.
REFUSED_KEY = (401, 402, 403)
FAILURES = {
    Ending.CONNECT: (503, "cannot be reached"),
    Ending.NO_FIRST_BYTE: (504, "did not answer in time"),
    Ending.INVALID: (502, "sent what is no valid response"),
}


class ExternalAttempt(TargetAttempts):
    """The attempt of one request at an external model, whose provider is the endpoint."""

    async def run(
        self,
        request: InferenceRequest,
        headers: Mapping[bytes, bytes],
        model: ExternalModel,
        cancellation: CancellationScope,
        record: RequestRecord,
    ) -> None:
        """Send the request if the provider may get it. Raises RequestError, RequestCancelled.

        headers: of the client, by name in lower case.
        """
        state, providers = self._state, self._state.providers
        self._check(request, model)
        key = providers.keys.get(model)
        origin, use = model.url.rstrip("/"), providers.use(model)
        endpoint = Endpoint(model.service_key, origin.partition("://")[2], "")
        now = state.now()
        if state.endpoints.ejected([endpoint], now):
            message = (
                f"the provider of the ExternalModel {model.key} has failed: it is tried again soon"
            )
            raise RequestError(503, message, retry_after_s=RETRY_AFTER_S)
        if (shortage_s := use.shortage_s(model, now)) is not None:
            message = f"the ExternalModel {model.key} is at a limit"
            raise RequestError(
                503, message, retry_after_s=max(1, round(shortage_s)), reason="overloaded"
            )
        state.endpoints.note_selected(endpoint.pod, now)
        self.endpoint = endpoint
        self._telemetry.note_endpoint(endpoint, None)
        outgoing = _outgoing(request, headers, model, key)
        use.note_sent(now)
        try:
            with record.in_flight(endpoint, None):
                response = await self._send(origin, outgoing, model, cancellation, record)
                relay = self._new_relay(response, endpoint, record, request)
                del request, outgoing
                await relay.run(cancellation)
        finally:
            self._count(model, record)

    def _check(self, request: InferenceRequest, model: ExternalModel) -> None:
        if not model.speaks(request.api):
            message = (
                f"the ExternalModel {model.key} speaks the API of {model.api}, which has no route "
                f"{request.api.path}: use another route, or another model"
            )
            raise RequestError(400, message, code="external_api")
        if not is_allowed_url(model.url, self._state.settings.allowed_external_urls):
            message = (
                f"the URL of the ExternalModel {model.key} is not allowed: an administrator has to name the "
                "beginning of it (--allowed-external-url)"
            )
            raise RequestError(503, message, code="external_not_allowed")

    async def _send(
        self,
        origin: str,
        outgoing: UpstreamRequest,
        model: ExternalModel,
        cancellation: CancellationScope,
        record: RequestRecord,
    ) -> UpstreamResponse:
        """Return the response that the client gets. Raises RequestError."""
        assert self.endpoint is not None
        self._telemetry.start_attempt(outgoing, self.endpoint)  # the provider gets no trace
        is_stream = outgoing.is_stream
        limit_s = model.first_byte_timeout_s if is_stream else model.request_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                response = await self._state.providers.upstream.send(
                    origin, outgoing, cancellation, self._telemetry.timeline,
                    self._telemetry.line.service, connect_timeout_s=model.connect_timeout_s,
                )  # fmt: skip
        except AttemptFailed as failed:
            if failed.response is not None:
                failed.response.close()
            raise self._failed(failed.ending, model, record) from None
        except TimeoutError:
            raise self._failed(Ending.NO_FIRST_BYTE, model, record) from None
        if (error := self._error_of(response, model, record)) is not None:
            response.close()
            raise error
        response.headers = [each for each in response.headers if each[0] in PROVIDER_HEADERS]
        return response

    def _error_of(
        self, response: UpstreamResponse, model: ExternalModel, record: RequestRecord
    ) -> RequestError | None:
        """The error in place of a response that says nothing about the request; None: the client gets it."""
        status = response.status
        if status == 429:
            now, value = self._state.now(), _header(response.headers, b"retry-after") or "1"
            use = self._state.providers.use(model)
            wait_s = use.note_retry_after(value, now, unix_time())
            message = f"the provider of the ExternalModel {model.key} takes no more requests now"
            self._telemetry.fail_attempt(Ending.UNAVAILABLE)
            return RequestError(
                503, message, retry_after_s=max(1, round(wait_s)), reason="overloaded"
            )
        if status in REFUSED_KEY:
            error = self._failed(Ending.ERROR, model, record)
            error.message = (
                f"the provider of the ExternalModel {model.key} refuses its key: the Secret has to have a "
                "valid one"
            )
            return error
        is_encoded = _header(response.headers, b"content-encoding") not in ("", "identity")
        if 300 <= status < 400 or is_encoded:
            return self._failed(Ending.INVALID, model, record)
        return self._failed(Ending.ERROR, model, record) if status >= 500 else None

    def _failed(self, ending: Ending, model: ExternalModel, record: RequestRecord) -> RequestError:
        """Count a failure of the provider. Returns its error."""
        assert self.endpoint is not None
        self.failures.append(ending)
        self._telemetry.fail_attempt(ending)
        self._state.endpoints.charge(self.endpoint.pod, ending, self._state.now())
        record.end.note_failed_attempt(self.endpoint, ending, is_serving=False)
        status, problem = FAILURES.get(ending, (502, "failed"))
        message = f"the provider of the ExternalModel {model.key} {problem}"
        retry_after_s = RETRY_AFTER_S if status == 503 else None
        return RequestError(status, message, retry_after_s=retry_after_s, reason="engines_failed")

    def _new_relay(
        self,
        response: UpstreamResponse,
        endpoint: Endpoint,
        record: RequestRecord,
        request: InferenceRequest,
    ) -> Relay:
        if not response.is_error:
            if response.source is None:
                self._state.endpoints.note_response_complete(endpoint.pod)
            else:
                self._state.endpoints.note_response_start(endpoint.pod)
        self._note_response()
        line = self._telemetry.line
        self.relay = Relay(
            self._state, line.service, endpoint, response, self._client, record, line.trace_id,
            free_endpoint=lambda: None, hides_usage=request.hides_usage,
        )  # fmt: skip
        self._telemetry.timeline.enter(RequestPhase.STREAM)
        return self.relay

    def _count(self, model: ExternalModel, record: RequestRecord) -> None:
        """Count the end of the request, its tokens and their cost."""
        prompt_tokens = output_tokens = 0
        if record.has_response and self.relay is not None and not self.relay.is_error:
            counted, output_tokens = record.usage.prompt_tokens, record.usage.output_tokens
            prompt_tokens = record.prompt_tokens if counted is None else counted
        use = self._state.providers.use(model)
        use.note_ended(prompt_tokens + output_tokens, self._state.now())
        self._state.metrics.routes.count_external(self._tenant, model, prompt_tokens, output_tokens)


def _outgoing(
    request: InferenceRequest, headers: Mapping[bytes, bytes], model: ExternalModel, key: str
) -> UpstreamRequest:
    """The request that the provider gets."""
    sent: CIMultiDict[str] = CIMultiDict()
    for name in CLIENT_HEADERS:
        if (value := headers.get(name.encode())) is not None:
            sent[name] = header_text(value)
    sent["Content-Type"], sent["Accept-Encoding"] = "application/json", "identity"
    if model.api == "Anthropic":
        sent.setdefault("anthropic-version", ANTHROPIC_VERSION)
    if key and model.api == "Anthropic":
        sent["x-api-key"] = key
    elif key:
        sent["Authorization"] = f"Bearer {key}"
    request = request.with_model(model.model)
    body = request.body
    if model.api == "OpenAI" and request.hides_usage:
        body = add_usage_option(body)
    api = request.api
    return UpstreamRequest(api, api.path, sent, body, is_stream=request.is_stream)


def _header(headers: RawHeaders, name: bytes) -> str:
    return next((value.decode("latin-1") for each, value in headers if each == name), "")
