"""Field of an InferenceService for each flag, for the preflight's messages: its users set fields."""

import re

EXTRA_ARGS = "spec.engine.extraArgs"
FIELDS = {
    f"--{flag}": f"spec.engine.{field}"
    for flag, field in {
        "max-model-len": "maxModelLen",
        "max-num-seqs": "maxNumSeqs",
        "max-num-batched-tokens": "maxNumBatchedTokens",
        "dtype": "dtype",
        "seed": "seed",
        "gpu-memory-utilization": "memoryUtilizationPercent",
        "quantization": "quantization.method",
        "kv-cache-memory-bytes": "kvCache.memory",
        "kv-cache-dtype": "kvCache.dtype",
        "block-size": "kvCache.blockSize",
        "enable-prefix-caching": "kvCache.prefixCaching.mode",
        "kv-offloading-size": "kvCache.offload.cpu.memory",
        "tensor-parallel-size": "parallelism.tensor",
        "pipeline-parallel-size": "parallelism.pipeline",
        "enable-expert-parallel": "parallelism.expert.mode",
        "speculative-config": "speculative",
        "enable-lora": "lora",
        "max-loras": "lora.maxAdapters",
        "max-lora-rank": "lora.maxRank",
        "max-cpu-loras": "lora.maxCPUAdapters",
        "generation-config": "generation.source",
        "override-generation-config": "generation.defaults",
        "tool-call-parser": "parsers.toolCall",
        "enable-auto-tool-choice": "parsers.toolCall",
        "reasoning-parser": "parsers.reasoning",
        "chat-template": "parsers.chatTemplate",
        "scheduling-policy": "scheduling.policy",
        "max-num-queued-reqs": "scheduling.maxQueuedRequests",
        "max-num-queued-tokens": "scheduling.maxQueuedTokens",
        "request-timeout": "scheduling.requestTimeout",
    }.items()
}
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


def in_fields(message: str) -> str:
    """The message with fields in place of flags. Flags without a field stay."""
    return _FLAG.sub(lambda match: FIELDS.get(match.group(), match.group()), message)


def about_arguments(message: str) -> str:
    """A message about the command line. It names extraArgs unless it names another field."""
    named = in_fields(message)
    return named if "spec." in named else f"{EXTRA_ARGS}: {named}"
