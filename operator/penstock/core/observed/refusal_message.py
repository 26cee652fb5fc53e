"""The sentence about a model that an engine refuses: the problem, and the fields to change."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.runtimes.flag_fields import in_fields

# Advice by remedy, as engines report it; {} is its quantity.
REMEDIES: Mapping[str, str] = {
    "Memory": "set spec.resources.limits.memory to at least {}Mi",
    "MoreMemory": "give spec.resources.limits.memory at least {}Mi more",
    "AcceleratorMemory": "take accelerators with at least {} MiB each",
    "MoreAcceleratorMemory": "take accelerators with at least {} MiB more memory each",
    "MoreRanks": "request more of them in spec.resources.limits, which split the weights",
    "Quantization": "set spec.engine.quantization.method",
    "KVCacheMemory": "set spec.engine.kvCache.memory to at least {}Mi",
    "ModelLength": "set spec.engine.maxModelLen to at most {}",
    "DraftModel": "name one in spec.engine.speculative.model.uri that was made for this model",
    "Safetensors": "convert the model to safetensors and set spec.model.uri to the result",
}

# Advice by reason, for errors without remedies; empty: the error says all that helps.
ADVICE: Mapping[str, str] = {
    "ModelNotFound": "set spec.model.uri to a folder that exists",
    "NotAModel": "set spec.model.uri to the folder that holds config.json",
    "UnsupportedArchitecture": "set spec.model.uri to a model of a supported architecture",
    "BadConfig": "set spec.model.uri to a model with a configuration that can be served",
    "BadWeights": "copy the complete model to the place that spec.model.uri names",
    "WeightsMismatch": "set spec.model.uri to weights and config.json of one and the same model",
    "QuantizedAlready": "remove spec.engine.quantization",
    "UnsupportedQuantization": "set spec.model.uri to a checkpoint that can be read",
    "CannotSplit": (
        "the number of tensor-parallel ranks is that of the accelerators in spec.resources.limits, unless "
        "spec.engine.parallelism says otherwise"
    ),
    "ReadFailed": (
        "let this user read it, or set runAsUser or fsGroup in spec.template.spec.securityContext"
    ),
    "NoSafetensors": "set spec.model.uri to the result",
    "NoTokenizer": "set spec.model.uri to a folder that holds the model's tokenizer.json too",
    "BadTokenizer": "set spec.model.uri to a folder with the tokenizer.json of this model",
    "BadDraftModel": "set spec.engine.speculative.model.uri to a draft model that can be served",
    "BadGenerationConfig": "change spec.engine.generation",
    "NoChatTemplate": "set spec.engine.parsers.chatTemplate to a key that its ConfigMap has",
    "BadChatTemplate": "set spec.engine.parsers.chatTemplate to a template that can be compiled",
    "BadTemplateVariables": "change spec.engine.extraArgs",
    "BadAdapter": "change spec.engine.extraArgs",
    "BadArguments": "change spec.engine, or its extraArgs",
    "ContextTooLong": "",
    "DraftMismatch": "",
    "NoDevice": "",
    "UnevenWidth": "",
    "WorkerLost": "",
}
# Memory that only an engine knows, as that of accelerators which no node tells.
MEMORY_REASONS = ("MemoryTooSmall", "KVCacheTooSmall")
MEMORY_ADVICE = "spec.resources.limits sets the memory and the number of accelerators"


def refusal_message(verdict: Mapping[str, Any]) -> str:
    """The sentence about the verdict of a preflight that refuses a model. Raises KeyError, TypeError.

    A verdict without `remedies` is from an earlier engine, whose message is this sentence.
    If the engine is newer and reports a remedy that is not known here, its own sentence stays.
    """
    if "remedies" not in verdict:
        return str(verdict["message"])
    remedies = dict(verdict["remedies"])
    if remedies.keys() - REMEDIES.keys():
        return in_fields(verdict["message"])
    problem = in_fields(verdict["problem"] if remedies else verdict["message"])
    if remedies:
        texts = [REMEDIES[name].format(quantity) for name, quantity in remedies.items()]
        return f"{problem}: {_alternatives(texts)}"
    advice = ADVICE.get(verdict["reason"])
    return f"{problem}: {advice}" if advice else problem


def end_message(text: str) -> str:
    """Return an engine's last message, with advice if its last line says why the model cannot be served."""
    before, newline, last = text.rstrip().rpartition("\n")
    reason = last.partition(": ")[0]
    if "spec." in last or reason not in (*ADVICE, *MEMORY_REASONS):
        return text
    advice = MEMORY_ADVICE if reason in MEMORY_REASONS else ADVICE[reason]
    return before + newline + "; ".join(filter(None, (in_fields(last), advice)))


def _alternatives(texts: Sequence[str]) -> str:
    *others, last = texts
    return f"{', '.join(others)}, or {last}" if others else last
