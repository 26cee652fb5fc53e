"""Flags of `vllm serve` that this engine does not have.

They are accepted if they request what the engine does anyway. Otherwise they are refused with advice.
"""

from collections.abc import Callable
from dataclasses import dataclass

from penstock_engine.files.json_reader import parse_json

SHORT = {
    "-dp": "--data-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
}

# Switches under an older name.
RENAMED = {"--disable-log-requests": "--no-enable-log-requests"}

# Other names of values; vLLM handles both names with the same code.
ALIASES: dict[str, dict[str, str]] = {
    "--dtype": {"float": "float32", "half": "float16"},
    "--reasoning-parser": {"mimo": "qwen3"},
    "--tool-call-parser": {"granite4": "hermes", "llama4_json": "llama3_json"},
}


@dataclass(frozen=True, slots=True)
class CompatibleOption:
    """A vLLM option with a value. It has no effect here: values are accepted or refused.

    accepts: whether a value requests what the engine does anyway. advice: what to do instead, for the
    error message.
    """

    accepts: Callable[[str], bool]
    advice: str


def _one_of(*values: str) -> Callable[[str], bool]:
    return lambda value: value in values


def _accept_none(_: str) -> bool:
    return False


def _is_empty(value: str) -> bool:
    """Whether the text is JSON null, {} or []."""
    try:
        return parse_json(value) in (None, {}, [])
    except ValueError:
        return False


def _allows_no_media(value: str) -> bool:
    """Whether every modality has a limit of 0. A limit is a number, or an object with a count."""
    try:
        limits = parse_json(value)
    except ValueError:
        return False
    if not isinstance(limits, dict):
        return False
    counts = [limit.get("count") if isinstance(limit, dict) else limit for limit in limits.values()]
    return all(count == 0 for count in counts)


GRAMMARS = ("auto", "guidance", "xgrammar")


def _is_known_grammar(value: str) -> bool:
    try:
        config = parse_json(value)
    except ValueError:
        return False
    return (
        isinstance(config, dict)
        and config.keys() <= {"backend"}
        and config.get("backend", "auto") in GRAMMARS
    )


_A_FOLDER = "models are not downloaded: pass the folder of the version that you want"
_ONE_ENGINE = "an engine is one replica: start more engines behind a gateway"
_GRAMMAR = f"use one of {', '.join(GRAMMARS)}: the answers fit their grammar with any of them"
_TEXT_ONLY = 'this engine reads only text: leave the flag out, or set 0, as in {"image": 0}'
_HOST_MEMORY = "host memory for the KV cache is --kv-offloading-size, in GiB"

COMPATIBLE_OPTIONS: dict[str, CompatibleOption] = {
    "--code-revision": CompatibleOption(_accept_none, _A_FOLDER),
    "--config-format": CompatibleOption(_one_of("auto", "hf"), "the engine reads config.json: use auto"),
    "--convert": CompatibleOption(
        _one_of("auto", "none", "embed"), "the model can only generate and embed: use auto"
    ),
    "--cpu-offload-gb": CompatibleOption(
        _one_of("0", "0.0"), "weights stay on the device: use --quantization or more devices"
    ),
    "--data-parallel-size": CompatibleOption(_one_of("1"), _ONE_ENGINE),
    "--disable-access-log-for-endpoints": CompatibleOption(lambda _: True, ""),  # there is no such log
    "--distributed-executor-backend": CompatibleOption(
        _one_of("mp"), "the processes of an engine share one machine: use mp or leave it out"
    ),
    "--download-dir": CompatibleOption(_accept_none, _A_FOLDER),
    "--guided-decoding-backend": CompatibleOption(_one_of(*GRAMMARS), _GRAMMAR),
    "--hf-overrides": CompatibleOption(_is_empty, "change the config.json in the model's folder"),
    "--kv-transfer-config": CompatibleOption(
        _is_empty, f"engines do not share KV caches: leave it out; {_HOST_MEMORY}"
    ),
    "--limit-mm-per-prompt": CompatibleOption(_allows_no_media, _TEXT_ONLY),
    "--load-format": CompatibleOption(
        _one_of("auto", "safetensors"), "weights are safetensors or GGUF: use auto, or convert the model"
    ),
    "--model-impl": CompatibleOption(
        _one_of("auto", "vllm"), "the engine has its own code for each architecture"
    ),
    "--nnodes": CompatibleOption(_one_of("1"), "the processes of an engine share one machine"),
    "--response-role": CompatibleOption(
        _one_of("assistant"), "a request with add_generation_prompt: false sets the role"
    ),
    "--revision": CompatibleOption(_accept_none, _A_FOLDER),
    "--runner": CompatibleOption(
        _one_of("auto", "generate", "pooling"), "the model can generate and embed: use auto"
    ),
    "--stream-interval": CompatibleOption(_one_of("1"), "every token is sent as soon as its text is certain"),
    "--structured-outputs-config": CompatibleOption(_is_known_grammar, f"backend: {_GRAMMAR}"),
    "--structured-outputs-config.backend": CompatibleOption(_one_of(*GRAMMARS), _GRAMMAR),
    "--swap-space": CompatibleOption(_one_of("0"), f"preempted requests are computed again; {_HOST_MEMORY}"),
    "--task": CompatibleOption(
        _one_of("auto", "generate", "embed", "embedding"),
        "the model can generate and embed: leave it out",
    ),
    "--tokenizer-mode": CompatibleOption(_one_of("auto", "hf"), "the engine reads tokenizer.json: use auto"),
    "--tokenizer-revision": CompatibleOption(_accept_none, _A_FOLDER),
}  # fmt: skip

# The reason why a switch is refused; None: it is accepted.
COMPATIBLE_SWITCHES: dict[str, str | None] = {
    "--disable-custom-all-reduce": None,
    "--disable-log-stats": None,
    "--disable-uvicorn-access-log": None,
    "--enable-chunked-prefill": None,
    "--enable-server-load-tracking": None,
    "--language-model-only": None,
    "--no-enable-chunked-prefill": "prompts are computed in chunks of at most "
    "--max-num-batched-tokens: raise that for fewer of them",
    "--no-enable-server-load-tracking": "GET /load always counts: leave it out",
    "--no-trust-remote-code": None,
    "--trust-remote-code": "code in a model's folder is never run: leave it out; a model of a "
    "supported architecture needs none",
}


def check_value(name: str, value: str | None) -> None:
    """Raise ValueError unless the value of a COMPATIBLE_OPTIONS flag requests what the engine does anyway."""
    flag = COMPATIBLE_OPTIONS[name]
    if value is None:
        raise ValueError(f"{name} needs a value")
    if not flag.accepts(value):
        raise ValueError(f"{name} {value}: {flag.advice}")


def check_switch(name: str) -> None:
    """Raise ValueError unless a COMPATIBLE_SWITCHES flag requests what the engine does anyway."""
    reason = COMPATIBLE_SWITCHES[name]
    if reason is not None:
        raise ValueError(f"{name}: {reason}")
