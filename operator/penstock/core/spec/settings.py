"""Settings of engine, runtime and tracing: the set fields of the spec by path, in base units.

The map is flat, so that a new field needs no more than its schema in `api`, a line in `fields.py`, and an
argument of each runtime in `core/runtimes`.
"""

from collections.abc import Mapping
from typing import Any

# For example {"engine.maxNumSeqs": 32, "engine.kvCache.memory": 536870912, "runtime.type": "VLLM"}. Memory is
# in bytes, time in seconds. A field that is not set is absent: the engine decides.
Settings = Mapping[str, Any]

DEFAULT_MEMORY_UTILIZATION_PERCENT = 90
DEFAULT_BLOCK_SIZE = 16
DEFAULT_DTYPE = "auto"
PENSTOCK, VLLM, CUSTOM = "Penstock", "VLLM", "Custom"

MAX_MODEL_LEN = "engine.maxModelLen"
MAX_NUM_SEQS = "engine.maxNumSeqs"
DEFAULT_MAX_TOKENS = "engine.generation.defaults.maxTokens"
MAX_NUM_BATCHED_TOKENS = "engine.maxNumBatchedTokens"
MEMORY_UTILIZATION = "engine.memoryUtilizationPercent"
DTYPE = "engine.dtype"
QUANTIZATION = "engine.quantization.method"
KV_MEMORY = "engine.kvCache.memory"
KV_DTYPE = "engine.kvCache.dtype"
KV_OFFLOAD_MEMORY = "engine.kvCache.offload.cpu.memory"
KV_BLOCK_SIZE = "engine.kvCache.blockSize"
PREFIX_CACHING = "engine.kvCache.prefixCaching.mode"
TENSOR_PARALLEL = "engine.parallelism.tensor"
PIPELINE_PARALLEL = "engine.parallelism.pipeline"
EXPERT_PARALLEL = "engine.parallelism.expert.mode"
SPECULATION_METHOD = "engine.speculative.method"
NUM_SPECULATIVE_TOKENS = "engine.speculative.numSpeculativeTokens"
DRAFT_MODEL = "engine.speculative.model.uri"
MAX_ADAPTERS = "engine.lora.maxAdapters"
LORA_SOURCES = "engine.lora.sources"
CHAT_TEMPLATE = "engine.parsers.chatTemplate.configMapKeyRef"
RUNTIME_TYPE = "runtime.type"
TRACING_ENDPOINT = "tracing.exporterEndpoint"
