"""Access log: one line for each request to an engine's route, without its texts."""

import logging
from dataclasses import dataclass

from penstock.clients.machine.logs import fields
from penstock.gateway.apis.response_usage import ResponseUsage
from penstock.gateway.request_lifecycle.timeline import Interval, seconds_by_phase

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class AccessLine:
    """Facts about one request, for its line."""

    request_id: str
    route: str  # path of the API
    method: str = "POST"
    # Name of the tenant, empty while the gateway is open, and id of the API key, empty without one
    tenant: str = ""
    key: str = ""
    # service, model_route: "namespace/name"
    service: str = ""
    model_route: str = ""
    fallback: str = ""  # why a fallback answered, such as overload; empty: none did
    adapter: str = ""  # its version's name in engines; empty: the request is for the base model
    revision: str = ""
    pod: str = ""  # the engine pod that was tried last
    num_attempts: int = 0
    is_stream: bool = False
    num_request_bytes: int = 0
    reason: str = ""  # why the response is not the engine's whole one; empty if it is
    rejection: str = ""  # the metric's word for the reason, if the error is the gateway's own
    trace_id: str = ""  # empty if the request is not traced

    def write(
        self,
        status: int,
        num_response_bytes: int,
        intervals: list[Interval],
        usage: ResponseUsage | None,
    ) -> None:
        """Write the line. usage: tokens of the response; None: there was no successful one."""
        if not logger.isEnabledFor(logging.INFO):
            return
        times_ms = {
            f"{phase}_ms": round(seconds * 1e3, 3)
            for phase, seconds in seconds_by_phase(intervals).items()
        }
        logger.info(
            "request",
            extra=fields(
                request_id=self.request_id,
                trace_id=self.trace_id or None,
                method=self.method,
                route=self.route,
                tenant=self.tenant or None,
                key=self.key or None,
                service=self.service or None,
                model_route=self.model_route or None,
                fallback=self.fallback or None,
                adapter=self.adapter or None,
                revision=self.revision or None,
                pod=self.pod or None,
                status=status,
                reason=self.reason or None,
                rejection=self.rejection or None,
                attempts=self.num_attempts,
                stream=self.is_stream,
                total_ms=round((intervals[-1].end_s - intervals[0].start_s) * 1e3, 3),
                **times_ms,
                prompt_tokens=usage and usage.prompt_tokens,
                cached_tokens=usage and usage.cached_tokens,
                completion_tokens=usage and usage.output_tokens,
                request_bytes=self.num_request_bytes,
                response_bytes=num_response_bytes,
            ),
        )
