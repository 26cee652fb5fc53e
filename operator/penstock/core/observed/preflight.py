"""Result of a preflight: whether the model of a revision can be served."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.formats.json_text import parse_json
from penstock.core.formats.json_values import as_number, as_object, as_text
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.refusal_message import refusal_message
from penstock.core.observed.retry_advice import files_advice, restart_command, source_advice
from penstock.core.spec.settings import Settings
from penstock_engine.contract.model_source import parse_model_source

# Settings that an engine derives from the model, by their field in the preflight's report.
DERIVED = {
    "max_model_len": "engine.maxModelLen",
    "max_num_seqs": "engine.maxNumSeqs",
    "max_num_batched_tokens": "engine.maxNumBatchedTokens",
    "dtype": "engine.dtype",
    "quantization": "engine.quantization.method",
}


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """Revision that the URI of a fetched model meant when it was resolved."""

    uri: str  # as in the spec
    resolved_uri: str  # names the same files at any time
    total_bytes: int  # of these files
    is_archive: bool = False  # whether they are archives, which are unpacked


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """Result of a preflight: whether the model can be served, with a reason and a message."""

    ok: bool
    reason: str
    message: str
    # of the engine, by path; a value that is None is unknown or not set
    settings: Settings = field(default_factory=dict)
    models: tuple[ResolvedModel, ...] = ()  # those that are fetched
    is_retryable: bool = False  # whether the check may succeed later, as a source did not answer
    # how to have it repeated after a correction outside the spec; empty if that does not help
    advice: str = ""


def preflight_result(preflight: ObservedPod) -> PreflightResult | None:
    """The verdict in the preflight's termination message; without one, by whether the pod succeeded.

    None while it runs, and if it has to be repeated.
    """
    found = _result(preflight)
    if found is None or found.is_retryable:
        return None
    if found.advice:
        found = replace(found, message=f"{found.message}; {found.advice}", advice="")
    return replace(found, message=on_variant(preflight, found.message))


def repetition_cause(preflight: ObservedPod) -> tuple[str, str] | None:
    """(reason, message) why an ended preflight has to be repeated; None if it has not.

    It was lost, or a source of its models did not answer.
    """
    found = _result(preflight)
    if found is not None and found.is_retryable:
        return found.reason, on_variant(preflight, f"{found.message}; it is tried again")
    if found is None and preflight.lost:
        return (
            "PreflightLost",
            f"the preflight was lost with its node and is replaced: {preflight.lost}",
        )
    return None


def resolved_models(preflights: Iterable[ObservedPod]) -> dict[str, ResolvedModel]:
    """The models that preflights which passed have resolved, by their URI in the spec.

    Where two found different revisions, that of the first one by name counts.
    """
    found: dict[str, ResolvedModel] = {}
    for each in sorted(preflights, key=lambda pod: pod.name):
        result = preflight_result(each)
        if result is not None and result.ok:
            found = {model.uri: model for model in result.models} | found
    return found


def on_variant(preflight: ObservedPod, message: str) -> str:
    """The message with the variant that the preflight checks, if it checks one apart from others."""
    return f"on variant {preflight.variant}: {message}" if preflight.variant else message


def _result(preflight: ObservedPod) -> PreflightResult | None:
    if preflight.phase not in ("Succeeded", "Failed"):
        return None
    try:
        report = as_object(parse_json(preflight.termination_message))
        models = tuple(_resolved(each) for each in report.get("sources", ()))
        # A report of success has a message if another program serves the model, or if it is in an archive.
        if report["ok"] and "message" in report:
            reason, message = as_text(report["reason"]), as_text(report["message"])
            return PreflightResult(True, reason, message, models=models)
        if report["ok"]:
            derived = {path: report[name] for name, path in DERIVED.items() if name in report}
            return PreflightResult(True, "Fits", _fit(report), derived, models)
        is_retryable = report.get("is_retryable") is True
        reason, message = as_text(report["reason"]), as_text(refusal_message(report))
        command = restart_command(preflight.service)
        advice = source_advice(command) if report.get("uri") else files_advice(reason, command)
        return PreflightResult(False, reason, message, is_retryable=is_retryable, advice=advice)
    except (ValueError, KeyError, TypeError):
        if preflight.phase == "Succeeded":
            return PreflightResult(True, "Passed", "the preflight passed")
        if preflight.lost:
            return None
        return PreflightResult(False, "PreflightFailed", _failure(preflight))


def _resolved(source: Any) -> ResolvedModel:
    """Read an entry of a preflight's sources. Raises ValueError, KeyError for one that it cannot have."""
    found = as_object(source)
    uri, resolved_uri = as_text(found["uri"]), as_text(found["resolved_uri"])
    resolved = parse_model_source(resolved_uri)
    if not resolved.is_resolved or resolved.scheme != parse_model_source(uri).scheme:
        raise ValueError("not a revision of the source")
    total_bytes = int(as_number(found["total_bytes"]))
    return ResolvedModel(uri, resolved_uri, total_bytes, found.get("is_archive") is True)


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
