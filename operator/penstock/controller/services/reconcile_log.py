"""Writes the log line of a reconcile."""

import logging
from collections.abc import Sequence

from penstock.clients.machine.logs import service_fields
from penstock.core.formats.conditions import find_condition
from penstock.core.spec.service import Object

logger = logging.getLogger(__name__)


def log_writes(
    key: tuple[str, str],
    written: Sequence[str],
    status: Object,
    revision: str | None,
    plan: Sequence[str] = (),
) -> None:
    """Log what a reconcile wrote, if anything.

    status: the new one. revision: the spec's, if that is valid. plan: the planned writes in words.
    """
    if not written:
        return
    rollout, scaling = status.get("rollout") or {}, status.get("scaling") or {}
    is_scaled = any(each.startswith("scale ") for each in written)
    logger.info(
        "reconciled",
        extra=service_fields(
            key,
            revision=revision,
            phase=rollout.get("phase"),
            written=list(written),
            plan=list(plan) or None,
            reason=rollout.get("message")
            or find_condition(status, "Stalled", "True").get("message"),
            scaling_reason=scaling.get("message") if is_scaled else None,
        ),
    )
