"""Result of a preflight: whether the model of a revision can be served."""

import json
from dataclasses import dataclass

from penstock.core.observed.pods import ObservedPod


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """Result of a preflight: whether the model can be served, with a reason and a message."""

    ok: bool
    reason: str
    message: str


def preflight_result(preflight: ObservedPod) -> PreflightResult | None:
    """The verdict in the preflight's termination message; without one, by whether the pod succeeded.

    None while it runs, and if it was lost.
    """
    if preflight.phase not in ("Succeeded", "Failed"):
        return None
    try:
        report = json.loads(preflight.termination_message)
        if report["ok"] and "message" in report:  # another program serves the model
            return PreflightResult(True, report["reason"], report["message"])
        if report["ok"]:
            capacity = f"{report['kv_capacity_tokens']} tokens of KV cache"
            message = f"{report['architecture']}, {report['weights_bytes'] >> 20} MiB of weights, {capacity}"
            return PreflightResult(True, "Fits", message)
        return PreflightResult(False, report["reason"], report["message"])
    except (ValueError, KeyError, TypeError):
        if preflight.phase == "Succeeded":
            return PreflightResult(True, "Passed", "the preflight passed")
        if preflight.lost:
            return None
        return PreflightResult(
            False, "PreflightFailed", preflight.termination_message[-500:] or "the preflight failed"
        )
