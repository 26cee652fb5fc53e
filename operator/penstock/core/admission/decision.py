"""Decisions of admission control about a request."""

from dataclasses import dataclass
from typing import Literal

from penstock.core.admission.engine_load import EngineLoad, Waiting

RejectReason = Literal["queue_full", "tenant_queue_full", "displaced", "overloaded"]

MESSAGES: dict[RejectReason, str] = {
    "queue_full": "too many requests wait for an engine",
    "tenant_queue_full": "too many requests of this tenant wait for an engine",
    "displaced": "too many requests wait for an engine, and others come first",
    "overloaded": "the requests ahead take longer than this one may wait",
}


@dataclass(frozen=True, slots=True)
class Admit:
    """The request goes to one of these engines."""

    waiting: Waiting
    engines: list[EngineLoad]


@dataclass(frozen=True, slots=True)
class Reject:
    """The request is refused. retry_after_s: when to send it again."""

    waiting: Waiting
    reason: RejectReason
    retry_after_s: float

    @property
    def message(self) -> str:
        return MESSAGES[self.reason]


@dataclass(frozen=True, slots=True)
class Wait:
    """The request is queued. displaced: the one that had to leave the full queue for it."""

    displaced: Reject | None = None
