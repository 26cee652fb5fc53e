"""The words of a command line written for vLLM, in the form in which the flags are declared here."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

# Flags that take more than one value: `--api-key one two`.
SEVERAL = ("--api-key", "--lora-modules", "--served-model-name")

SHORT = {
    "-ep": "--enable-expert-parallel",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
}

# What vLLM can be told and this engine does anyway, and the values that say so; None: without one.
# Other values are refused, as every flag is that would change nothing.
ANYWAY: dict[str, tuple[str | None, ...]] = {
    "--chat-template-content-format": ("auto", "string"),
    "--data-parallel-size": ("1",),
    "--disable-log-stats": (None,),
    "--disable-uvicorn-access-log": (None,),
    "--distributed-executor-backend": ("mp",),
    "--enable-chunked-prefill": (None,),
    "--load-format": ("auto", "safetensors"),
    "--no-trust-remote-code": (None,),
    "--tokenizer-mode": ("auto", "hf"),
}


def in_click_words(words: Sequence[str]) -> list[str]:
    """`--max_model_len`, `-tp 2`, several values after one flag, `--config FILE`, and what is so anyway.

    Raises ValueError, which says what is wrong with the file.
    """
    written: list[str] = []
    repeated = ""
    rest = iter(_with_file(words))
    for word in rest:
        if not word.startswith("-") or word[1:2].isdigit():
            written += [repeated, word] if repeated else [word]
            continue
        name, equals, value = word.partition("=")
        name = SHORT.get(name, name if name[:2] != "--" else name.replace("_", "-"))
        repeated = name if name in SEVERAL else ""
        if name in ANYWAY:
            said = value if equals else None
            if said is None and None not in ANYWAY[name]:
                said = next(rest, None)
            if said not in ANYWAY[name]:
                written += [name] if said is None else [name, said]
        elif not repeated or equals:
            written.append(name + equals + value)
    return written


def _with_file(words: Sequence[str]) -> Iterator[str]:
    """What a `--config` names goes before the flags that are written out, which win over it."""
    kept = list(words)
    named = [index for index, word in enumerate(kept) if word.partition("=")[0] == "--config"]
    for index in reversed(named):
        _, equals, path = kept[index].partition("=")
        end = index + (1 if equals else 2)
        if not equals:
            path = kept[index + 1] if index + 1 < len(kept) else ""
        kept[index:end] = []
        flags = _flags(Path(path))
        model = flags.pop("model", None)
        given = [text for name, value in flags.items() for text in _words(name, value)]
        kept[1:1] = [*([] if model is None else [str(model)]), *given]
    return iter(kept)


def _flags(path: Path) -> dict[str, Any]:
    try:
        flags = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"--config: {str(path)!r} cannot be read as YAML") from error
    if not isinstance(flags, dict) or not all(isinstance(name, str) for name in flags):
        raise ValueError(f"--config: {str(path)!r} must have rows of the form `flag-name: value`")
    return flags


def _words(name: str, value: Any) -> list[str]:
    flag = f"--{name}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{name}"]
    if flag.replace("_", "-") in SEVERAL and isinstance(value, list):
        return [flag, *map(str, value)]
    return [f"{flag}={value if isinstance(value, str) else json.dumps(value)}"]
