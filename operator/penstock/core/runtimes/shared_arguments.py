"""Arguments that `penstock-engine serve` and `vllm serve` spell alike."""

import json
from typing import Any

from penstock.core.runtimes.paths import CHAT_TEMPLATE_MOUNT, DRAFT_MOUNT, mounted_path
from penstock.core.runtimes.pod_models import DRAFT_URI
from penstock.core.runtimes.runtime import Argument, choice, option, switch
from penstock.core.spec.service import EVENTS_PORT, EVENTS_REPLAY_PORT
from penstock.core.spec.settings import Settings

# Key in the JSON of --speculative-config for each setting.
SPECULATION_KEYS = {
    "engine.speculative.method": "method",
    "engine.speculative.numSpeculativeTokens": "num_speculative_tokens",
    "engine.speculative.ngram.promptLookupMin": "prompt_lookup_min",
    "engine.speculative.ngram.promptLookupMax": "prompt_lookup_max",
}
# Key in the JSON of --override-generation-config for each setting.
GENERATION_KEYS = {
    "engine.generation.defaults.temperature": "temperature",
    "engine.generation.defaults.topP": "top_p",
    "engine.generation.defaults.topK": "top_k",
    "engine.generation.defaults.minP": "min_p",
    "engine.generation.defaults.repetitionPenalty": "repetition_penalty",
    "engine.generation.defaults.maxTokens": "max_new_tokens",
}


# Settings of block events. hwm bounds the memory for a subscriber that reads nothing.
KV_EVENTS = {
    "enable_kv_cache_events": True,
    "publisher": "zmq",
    "endpoint": f"tcp://*:{EVENTS_PORT}",
    "replay_endpoint": f"tcp://*:{EVENTS_REPLAY_PORT}",
    "hwm": 10_000,
}


def _speculation_args(settings: Settings) -> list[str]:
    """`--speculative-config=JSON`. The draft model is at its path in the container."""
    config = _rename(settings, SPECULATION_KEYS)
    if DRAFT_URI in settings:
        config["model"] = mounted_path(settings[DRAFT_URI], DRAFT_MOUNT)
    return [f"--speculative-config={json.dumps(config)}"]


def _generation_args(settings: Settings) -> list[str]:
    """`--override-generation-config=JSON`."""
    return [f"--override-generation-config={json.dumps(_rename(settings, GENERATION_KEYS))}"]


def _chat_template_args(settings: Settings) -> list[str]:
    key = settings["engine.parsers.chatTemplate.configMapKeyRef.key"]
    return [f"--chat-template={CHAT_TEMPLATE_MOUNT}/{key}"]


def _rename(settings: Settings, names: dict[str, str]) -> dict[str, Any]:
    """The settings that have a name in `names`, by that name."""
    return {name: settings[path] for path, name in names.items() if path in settings}


def _events_args(settings: Settings) -> list[str]:
    """`--kv-events-config=JSON` with vLLM's names; nothing if the setting is false."""
    return (
        [f"--kv-events-config={json.dumps(KV_EVENTS)}"]
        if settings["engine.kvCache.events.mode"]
        else []
    )


SHARED = (
    option("engine.maxModelLen", "--max-model-len"),
    option("engine.maxNumSeqs", "--max-num-seqs"),
    option("engine.maxNumBatchedTokens", "--max-num-batched-tokens"),
    option("engine.dtype", "--dtype"),
    option("engine.seed", "--seed"),
    option(
        "engine.memoryUtilizationPercent",
        "--gpu-memory-utilization",
        text=lambda percent: f"{percent / 100:g}",
    ),
    option("engine.kvCache.memory", "--kv-cache-memory-bytes"),
    option("engine.kvCache.blockSize", "--block-size"),
    switch("engine.kvCache.prefixCaching.mode", "--enable-prefix-caching"),
    Argument(("engine.kvCache.events.mode",), ("--kv-events-config",), _events_args),
    option(
        "engine.kvCache.offload.cpu.memory",
        "--kv-offloading-size",
        text=lambda size_bytes: f"{size_bytes / 2**30:g}",
    ),
    option("engine.parallelism.tensor", "--tensor-parallel-size"),
    option("engine.parallelism.pipeline", "--pipeline-parallel-size"),
    switch("engine.parallelism.expert.mode", "--enable-expert-parallel"),
    choice(
        "engine.scheduling.policy", "--scheduling-policy", {"FCFS": "fcfs", "Priority": "priority"}
    ),
    choice("engine.generation.source", "--generation-config", {"Model": "auto", "None": "vllm"}),
    Argument(tuple(GENERATION_KEYS), ("--override-generation-config",), _generation_args),
    Argument(
        (
            "engine.parsers.chatTemplate.configMapKeyRef.name",
            "engine.parsers.chatTemplate.configMapKeyRef.key",
        ),
        ("--chat-template",),
        _chat_template_args,
    ),
    option("engine.scheduling.maxQueuedRequests", "--max-num-queued-reqs"),
    option("engine.scheduling.maxQueuedTokens", "--max-num-queued-tokens"),
    Argument(
        ("engine.lora.maxAdapters",),
        ("--enable-lora", "--max-loras"),
        lambda s: ["--enable-lora", f"--max-loras={s['engine.lora.maxAdapters']}"],
    ),
    option("engine.lora.maxRank", "--max-lora-rank"),
    option("engine.lora.maxCPUAdapters", "--max-cpu-loras"),
    Argument(("engine.lora.sources",), (), lambda _: []),  # mounts
)


def speculation(*methods: str) -> Argument:
    """`--speculative-config`. methods: those that the runtime has; none: not checked."""
    paths = (*SPECULATION_KEYS, DRAFT_URI)
    return Argument(paths, ("--speculative-config",), _speculation_args, methods)


def parser(path: str, flag: str, *more: str, values: tuple[str, ...] = ()) -> Argument:
    """`flag=VALUE` of a parser. more: flags without which it has no effect."""
    return Argument((path,), (flag, *more), lambda s: [*more, f"{flag}={s[path]}"], values)


_ADDRESS = "gateways and the operator reach an engine at its pod's address"
HTTP_ONLY = "gateways and the operator reach engines by http"
# Flags that extraArgs may not have with penstock-engine and vLLM, each with the reason.
RESERVED_FLAGS = {
    "--api-key": "gateways send no key; a NetworkPolicy says who may reach engines",
    "--config": "write its flags in spec.engine",
    "--enable-prompt-tokens-details": "it is always set, because canaries compare prefix-hit rates",
    "--help": "an engine with it would end at once",
    "--host": _ADDRESS,
    "--model": "spec.model.uri sets it",
    # The size of the KV cache as a number of blocks.
    "--num-gpu-blocks-override": "set spec.engine.kvCache.memory instead",
    "--port": _ADDRESS,
    "--root-path": "gateways pass the paths of the API on as they are",
    "--served-model-name": "spec.model.name sets it",
    "--shutdown-timeout": "spec.terminationGracePeriodSeconds sets it",
    "--ssl-ca-certs": HTTP_ONLY,
    "--ssl-cert-reqs": HTTP_ONLY,
    "--ssl-certfile": HTTP_ONLY,
    "--ssl-keyfile": HTTP_ONLY,
    "--uds": _ADDRESS,
}
