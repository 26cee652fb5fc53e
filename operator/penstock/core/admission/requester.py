"""Whom a waiting request counts for: its tenant, with the tenant's place among others."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requester:
    """The tenant of a request, as admission sees it.

    tenant: empty if tenants are not distinguished. priority: a higher class is served first and shed last.
    weight: share among the tenants of the class. max_queued: how many of its requests may wait in the class;
    max_wait_s: how long each may. None: there is no bound but the queue's.
    """

    tenant: str = ""
    priority: int = 0
    weight: int = 1
    max_queued: int | None = None
    max_wait_s: float | None = None


ANYBODY = Requester()
