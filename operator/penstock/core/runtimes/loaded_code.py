"""Refuses arguments of vLLM that load code: classes by their name, plugins, and files.

Such code would come from a mounted volume, or from a part of the image that is there for another purpose.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from penstock.core.formats.json_text import parse_json
from penstock.core.runtimes.runtime import VARIABLE

_INSTEAD = "for that, set spec.runtime.type to Custom, with an image and arguments of your own"
LOADS_CODE = f"it loads code by name; {_INSTEAD}"
IN_MODEL = f"code in a model's folder is never run; {_INSTEAD}"

# Flags of vLLM 0.32 whose value names a class, a plugin or a file with code, and why they are reserved.
CODE_FLAGS = {
    "--code-revision": IN_MODEL,
    "--distributed-executor-backend": (
        "it may name a class; the ranks of an engine are processes of its pod without it"
    ),
    "--io-processor-plugin": LOADS_CODE,
    "--log-config-file": LOADS_CODE,
    "--logits-processors": LOADS_CODE,
    "--middleware": LOADS_CODE,
    "--model-class-overrides": LOADS_CODE,
    "--reasoning-parser-plugin": IN_MODEL,
    "--scheduler-cls": LOADS_CODE,
    "--tool-parser-plugin": IN_MODEL,
    "--trust-remote-code": IN_MODEL,
    "--worker-cls": LOADS_CODE,
    "--worker-extension-cls": LOADS_CODE,
}

# Flags that take JSON, all keys at once or one as in --x.key=value, of which some load code.
JSON_FLAGS = (
    "--compilation-config", "--ec-manager-config", "--ec-transfer-config", "--hf-overrides",
    "--kv-transfer-config", "--logging-config", "--mm-processor-kwargs", "--profiler-config",
    "--reasoning-config", "--structured-outputs-config", "--weight-transfer-config",
)  # fmt: skip
_CODE_KEY = re.compile(
    r".*(module_path|_cls|_plugin)|inductor_passes|pylogging_config_file|trust_remote_code"
)
# Key that names one of vLLM's own backends, or a function by its path.
_BACKEND = "backend"


def refused_code(args: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each argument whose JSON, or key of it, makes vLLM load code.

    args: extraArgs. The value of a flag is in the same argument or in the next one.
    """
    flag = ""
    for arg in args:
        name, _, value = arg.partition("=")
        if arg.startswith("-"):
            flag = name
        else:
            value = arg
        if VARIABLE in value and _takes_json(flag):
            yield f"spec.engine.extraArgs must not have {arg}: write the value out, without a variable"
        for key in _code_keys(flag.split(".")[1:], value):
            yield f"spec.engine.extraArgs must not have {key} in {arg}: {LOADS_CODE}"


def _takes_json(flag: str) -> bool:
    """Whether a flag may be one that takes JSON: it has a key, or begins like one, or is short."""
    if not flag.startswith("--"):
        return bool(flag)
    return "." in flag or any(each.startswith(flag.replace("_", "-")) for each in JSON_FLAGS)


def _code_keys(keys: Sequence[str], value: str) -> Iterator[str]:
    """Yield the keys that load code. keys: of the flag, as in --x.key; value: text or JSON."""
    pairs: list[tuple[str, Any]] = [(key.rstrip("+"), value) for key in keys]

    def collect(found: list[tuple[str, Any]]) -> None:
        pairs.extend(found)

    with suppress(ValueError):  # a value without keys
        parse_json(value, collect)
    for key, given in pairs:
        is_path = key == _BACKEND and isinstance(given, str) and "." in given
        if is_path or _CODE_KEY.fullmatch(key.replace("-", "_")):
            yield key
