"""Conditions of refused models: fields of the spec, with the engine's numbers."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.core.reconcile.conditions.observed_engines import preflight

from penstock.core.observed import refusal_message as messages
from penstock.core.observed.preflight import PreflightResult, preflight_result
from penstock.core.observed.refusal_message import ADVICE, end_message, refusal_message
from penstock.core.runtimes.flag_fields import FIELDS, in_fields
from penstock_engine.core import errors
from penstock_engine.core.errors import ModelError, Remedies
from penstock_engine.memory.preflight import bad_arguments, refusal

FOLDER = Path("/models")
CORRECT_FILES = "or correct the files and run: kubectl penstock rollout restart chat"
# An engine from before remedies: its message names fields, and ends with the advice.
EARLIER = "the folder has no config.json: set spec.model.uri to the folder that holds config.json"


def said(verdict: dict[str, Any]) -> PreflightResult | None:
    return preflight_result(preflight("Failed", json.dumps(verdict)))


def test_the_operator_has_a_sentence_for_each_remedy_of_the_engine() -> None:
    assert messages.REMEDIES.keys() == errors.REMEDIES.keys()
    for name, text in messages.REMEDIES.items():
        assert ("{}" in text) == ("{}" in errors.REMEDIES[name])


@pytest.mark.parametrize(
    ("remedies", "advice"),
    [
        ({"Memory": 549}, "set spec.resources.limits.memory to at least 549Mi"),
        (
            {"MoreMemory": 37, "ModelLength": 160},
            "give spec.resources.limits.memory at least 37Mi more, or set spec.engine.maxModelLen to at "
            "most 160",
        ),
        (
            {"AcceleratorMemory": 900, "MoreRanks": None, "Quantization": None},
            "take accelerators with at least 900 MiB each, request more of them in spec.resources.limits, "
            "which split the weights, or set spec.engine.quantization.method",
        ),
        ({"KVCacheMemory": 16}, "set spec.engine.kvCache.memory to at least 16Mi"),
    ],
)
def test_remedies_are_told_in_fields_and_quantities_of_kubernetes(
    remedies: Remedies, advice: str
) -> None:
    verdict = refusal(ModelError("MemoryTooSmall", "it does not fit", remedies), FOLDER)
    assert said(verdict) == PreflightResult(False, "MemoryTooSmall", f"it does not fit: {advice}")


def test_the_engine_tells_remedies_in_its_flags() -> None:
    """Messages for users of the engine alone, and for operators older than remedies."""
    remedies: Remedies = {"KVCacheMemory": 16, "ModelLength": 160}
    verdict = refusal(ModelError("KVCacheTooSmall", "room for 160 tokens", remedies), FOLDER)
    assert verdict == {
        "ok": False,
        "reason": "KVCacheTooSmall",
        "message": "room for 160 tokens: set --kv-cache-memory-bytes to at least 16M, or set "
        "--max-model-len to at most 160",
        "problem": "room for 160 tokens",
        "remedies": {"KVCacheMemory": 16, "ModelLength": 160},
    }


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        (
            refusal(ModelError("NotAModel", "the folder has no config.json"), FOLDER),
            "the folder has no config.json: set spec.model.uri to the folder that holds config.json; "
            f"{CORRECT_FILES}",
        ),
        (
            refusal(ModelError("ModelNotFound", "there is no model directory"), FOLDER),
            "there is no model directory (/models): set spec.model.uri to a folder that exists; "
            f"{CORRECT_FILES}",
        ),
        (
            refusal(ModelError("ContextTooLong", "--max-model-len is 9, not 8"), FOLDER),
            "spec.engine.maxModelLen is 9, not 8",
        ),
        (
            bad_arguments("--lora-modules needs --enable-lora"),
            "--lora-modules needs spec.engine.lora.maxAdapters: change spec.engine, or its extraArgs",
        ),
    ],
)
def test_a_refusal_without_remedies_gets_advice_by_its_reason(
    verdict: dict[str, Any], message: str
) -> None:
    assert said(verdict) == PreflightResult(False, verdict["reason"], message)


def test_the_sentence_of_an_earlier_engine_stays() -> None:
    verdict = {"ok": False, "reason": "NotAModel", "message": EARLIER}
    assert said(verdict) == PreflightResult(False, "NotAModel", f"{EARLIER}; {CORRECT_FILES}")


def test_the_sentence_of_a_later_engine_with_another_remedy_stays_with_fields() -> None:
    verdict = {
        "ok": False, "reason": "MemoryTooSmall", "message": "too large: set --max-model-len or prune it",
        "problem": "too large", "remedies": {"ModelLength": 9, "Pruning": None},
    }  # fmt: skip
    assert refusal_message(verdict) == "too large: set spec.engine.maxModelLen or prune it"


@pytest.mark.parametrize("remedies", [7, "Memory", [["Memory"]], {"Memory": 1}])
def test_a_malformed_verdict_is_a_failed_preflight(remedies: Any) -> None:
    verdict = {"ok": False, "reason": "MemoryTooSmall", "message": "no", "remedies": remedies}
    assert said(verdict) == PreflightResult(False, "PreflightFailed", json.dumps(verdict))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "starting\nKVCacheTooSmall: room for 9 tokens: set --max-model-len to at most 9 (/models)\n",
            "starting\nKVCacheTooSmall: room for 9 tokens: set spec.engine.maxModelLen to at most 9 "
            "(/models); spec.resources.limits sets the memory and the number of accelerators",
        ),
        (
            "log about spec. decoding\nKVCacheTooSmall: set --kv-cache-memory-bytes to at least 8M",
            "log about spec. decoding\nKVCacheTooSmall: set spec.engine.kvCache.memory to at least 8Mi; "
            "spec.resources.limits sets the memory and the number of accelerators",
        ),
        (
            "ContextTooLong: --max-model-len is 9, but 4 fit",
            "ContextTooLong: spec.engine.maxModelLen is 9, but 4 fit",
        ),
        ("NoTokenizer: none (/models)", f"NoTokenizer: none (/models); {ADVICE['NoTokenizer']}"),
        ("BadConfig: none: set spec.model.uri", "BadConfig: none: set spec.model.uri"),
        ("ValueError: --dtype of another server\n", "ValueError: --dtype of another server\n"),
        ("", ""),
    ],
)
def test_the_end_of_an_engine_is_told_in_fields(text: str, message: str) -> None:
    assert end_message(text) == message


def test_flags_are_replaced_by_the_fields_that_set_them() -> None:
    assert FIELDS == {
        "--max-model-len": "spec.engine.maxModelLen",
        "--max-num-seqs": "spec.engine.maxNumSeqs",
        "--max-num-batched-tokens": "spec.engine.maxNumBatchedTokens",
        "--dtype": "spec.engine.dtype",
        "--seed": "spec.engine.seed",
        "--gpu-memory-utilization": "spec.engine.memoryUtilizationPercent",
        "--quantization": "spec.engine.quantization.method",
        "--kv-cache-memory-bytes": "spec.engine.kvCache.memory",
        "--kv-cache-dtype": "spec.engine.kvCache.dtype",
        "--block-size": "spec.engine.kvCache.blockSize",
        "--enable-prefix-caching": "spec.engine.kvCache.prefixCaching.mode",
        "--no-enable-prefix-caching": "spec.engine.kvCache.prefixCaching.mode",
        "--kv-events-config": "spec.engine.kvCache.events.mode",
        "--kv-offloading-size": "spec.engine.kvCache.offload.cpu.memory",
        "--tensor-parallel-size": "spec.engine.parallelism.tensor",
        "--pipeline-parallel-size": "spec.engine.parallelism.pipeline",
        "--enable-expert-parallel": "spec.engine.parallelism.expert.mode",
        "--no-enable-expert-parallel": "spec.engine.parallelism.expert.mode",
        "--speculative-config": "spec.engine.speculative",
        "--enable-lora": "spec.engine.lora.maxAdapters",
        "--max-loras": "spec.engine.lora.maxAdapters",
        "--max-lora-rank": "spec.engine.lora.maxRank",
        "--max-cpu-loras": "spec.engine.lora.maxCPUAdapters",
        "--generation-config": "spec.engine.generation.source",
        "--override-generation-config": "spec.engine.generation.defaults",
        "--tool-call-parser": "spec.engine.parsers.toolCall",
        "--enable-auto-tool-choice": "spec.engine.parsers.toolCall",
        "--reasoning-parser": "spec.engine.parsers.reasoning",
        "--chat-template": "spec.engine.parsers.chatTemplate.configMapKeyRef",
        "--scheduling-policy": "spec.engine.scheduling.policy",
        "--max-num-queued-reqs": "spec.engine.scheduling.maxQueuedRequests",
        "--max-num-queued-tokens": "spec.engine.scheduling.maxQueuedTokens",
        "--request-timeout": "spec.engine.scheduling.requestTimeout",
    }
    assert in_fields("set --dtype, '--seed' or --lora-modules; not x--dtype") == (
        "set spec.engine.dtype, 'spec.engine.seed' or --lora-modules; not x--dtype"
    )
