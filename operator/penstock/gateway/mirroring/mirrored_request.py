"""A request that copies are sent of, and the time limits of a copy."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.routing.charge import Ending, ending_of_timeout
from penstock.gateway.apis.request import InferenceRequest
from penstock.gateway.settings import GatewaySettings


@dataclass(frozen=True, slots=True)
class MirroredRequest:
    """A request to send copies of.

    path: with the query. headers: as sent to the original's engine. timeout_s: of the whole request, by
    the rule of its ModelRoute; None: the gateway's.
    """

    request: InferenceRequest
    path: str
    headers: Mapping[str, str]
    timeout_s: float | None = None


class CopyLimits:
    """Time limits of a copy, which are those of its original.

    timeout: for the block in which the copy is sent; raises TimeoutError. has_response: whether a part of the
    response has arrived.
    """

    def __init__(self, copy: MirroredRequest, settings: GatewaySettings) -> None:
        self._now_s = asyncio.get_running_loop().time
        total_s = settings.total_timeout_s
        self._is_of_route = copy.timeout_s is not None and copy.timeout_s < total_s
        if copy.timeout_s is not None:
            total_s = min(total_s, copy.timeout_s)
        self._ends_at_s = self._now_s() + total_s
        is_stream = copy.request.is_stream
        self._between_s = settings.between_chunks_timeout_s if is_stream else total_s
        first_byte_s = settings.first_byte_timeout_s if is_stream else total_s
        self.has_response = False
        self.timeout = asyncio.timeout_at(self._limit_s(first_byte_s))

    def note_chunk(self) -> None:
        """Start the limit for the next chunk."""
        self.has_response = True
        self.timeout.reschedule(self._limit_s(self._between_s))

    @property
    def ending(self) -> Ending:
        """How a copy ends whose time is over."""
        is_total = self.timeout.when() == self._ends_at_s
        return ending_of_timeout(
            has_response=self.has_response,
            is_total=is_total,
            is_of_route=is_total and self._is_of_route,
        )

    def _limit_s(self, seconds: float) -> float:
        return min(self._ends_at_s, self._now_s() + seconds)
