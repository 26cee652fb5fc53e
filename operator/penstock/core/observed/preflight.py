"""Result of a preflight: whether the model of a revision can be served."""

from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.formats.json_text import parse_json
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.refusal_message import refusal_message
from penstock.core.spec.settings import Settings

# Settings that an engine derives from the model, by their field in the preflight's report.
DERIVED = {
    "max_model_len": "engine.maxModelLen",
    "max_num_seqs": "engine.maxNumSeqs",
    "max_num_batched_tokens": "engine.maxNumBatchedTokens",
    "dtype": "engine.dtype",
    "quantization": "engine.quantization.method",
}


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """Result of a preflight: whether the model can be served, with a reason and a message.

    settings: that the engine will have, by path; a value that is None is unknown or not set.
    """

    ok: bool
    reason: str
    message: str
    settings: Settings = field(default_factory=dict)


def preflight_result(preflight: ObservedPod) -> PreflightResult | None:
    """The verdict in the preflight's termination message; without one, by whether the pod succeeded.

    None while it runs, and if it was lost.
    """
    found = _result(preflight)
    return found and replace(found, message=on_variant(preflight, found.message))


def on_variant(preflight: ObservedPod, message: str) -> str:
    """The message with the variant that the preflight checks, if it checks one apart from others."""
    return f"on variant {preflight.variant}: {message}" if preflight.variant else message


def _result(preflight: ObservedPod) -> PreflightResult | None:
    if preflight.phase not in ("Succeeded", "Failed"):
        return None
    try:
        report = parse_json(preflight.termination_message)
        if report["ok"] and "message" in report:  # another program serves the model
            return PreflightResult(True, report["reason"], report["message"])
        if report["ok"]:
            derived = {path: report[name] for name, path in DERIVED.items() if name in report}
            return PreflightResult(True, "Fits", _fit(report), derived)
        return PreflightResult(False, report["reason"], refusal_message(report))
    except (ValueError, KeyError, TypeError):
        if preflight.phase == "Succeeded":
            return PreflightResult(True, "Passed", "the preflight passed")
        if preflight.lost:
            return None
        return PreflightResult(False, "PreflightFailed", _failure(preflight))


def _failure(preflight: ObservedPod) -> str:
    """Message about a preflight that failed and gave no verdict."""
    if preflight.is_out_of_memory:
        return "the preflight was killed for lack of memory"
    return preflight.termination_message[-500:] or "the preflight failed"


def _fit(report: dict[str, Any]) -> str:
    """Message about a model that fits: its weights and KV cache, for each accelerator if it has some."""
    weights = f"{report['architecture']}, {report['weights_bytes'] >> 20} MiB of weights"
    capacity = f"{report['kv_capacity_tokens']} tokens of KV cache"
    if "accelerator_memory_bytes" not in report:
        return f"{weights}, {capacity}"
    memory_bytes = report["accelerator_memory_bytes"]
    if memory_bytes is None:
        return (
            f"{weights} on each accelerator, whose memory is unknown, so it was not checked whether "
            "they fit"
        )
    return f"{weights} on each accelerator of {memory_bytes >> 20} MiB, {capacity}"
