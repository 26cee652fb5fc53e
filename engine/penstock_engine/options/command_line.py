"""Translates a command line written for vLLM to this engine's own flags."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from penstock_engine.options.vllm_flags import (
    ALIASES,
    COMPATIBLE_OPTIONS,
    COMPATIBLE_SWITCHES,
    RENAMED,
    SHORT,
    check_switch,
    check_value,
)

# Flags that take more than one value: `--api-key one two`.
SEVERAL = ("--api-key", "--lora-modules", "--served-model-name")


def translate_vllm_args(words: Sequence[str]) -> list[str]:
    """Translates the arguments of `vllm serve` to those of this engine's parser (click).

    Handles `--max_model_len`, `-tp 2`, several values after one flag, `--config FILE`, and flags that
    only vLLM has. Raises ValueError for a bad file, and for a vLLM flag that is refused.
    """
    args: list[str] = []
    repeated = ""
    remaining = iter(_with_file(words))
    for word in remaining:
        if not word.startswith("-") or word[1:2].isdigit():
            args += [repeated, word] if repeated else [word]
            continue
        name, equals, value = word.partition("=")
        name = SHORT.get(name, name if name[:2] != "--" else name.replace("_", "-"))
        name = RENAMED.get(name, name)
        repeated = name if name in SEVERAL else ""
        if name in COMPATIBLE_SWITCHES:
            check_switch(_switch(name, value) if equals else name)
        elif name in COMPATIBLE_OPTIONS:
            check_value(name, value if equals else next(remaining, None))
        elif name == "--model":  # the model is a positional argument here
            args += [value] if equals else []
        elif name in ALIASES and (chosen := value if equals else next(remaining, None)) is not None:
            chosen = ALIASES[name].get(chosen, chosen)
            args += [f"{name}={chosen}"] if equals else [name, chosen]
        elif not repeated or equals:
            args.append(name + equals + value)
    return args


def _switch(name: str, value: str) -> str:
    """Name of the switch that `name=true` or `name=false` stands for. Raises ValueError."""
    if value not in ("true", "false"):
        raise ValueError(f"{name} takes no value")
    if value == "true":
        return name
    base = name.removeprefix("--")
    opposite = f"--{base.removeprefix('no-')}" if base.startswith("no-") else f"--no-{base}"
    if opposite not in COMPATIBLE_SWITCHES:
        raise ValueError(f"{name} takes no value")
    return opposite


def _with_file(words: Sequence[str]) -> Iterator[str]:
    """Insert the flags of a `--config` file before the explicit flags, which override them."""
    rest = list(words)
    named = [index for index, word in enumerate(rest) if word.partition("=")[0] == "--config"]
    for index in reversed(named):
        _, equals, path = rest[index].partition("=")
        end = index + (1 if equals else 2)
        if not equals:
            path = rest[index + 1] if index + 1 < len(rest) else ""
        rest[index:end] = []
        flags = _flags(Path(path))
        model = flags.pop("model", None)
        inserted = [text for name, value in flags.items() for text in _words(name, value)]
        # Inserted after the command and its model, because a word after a flag with several values
        # would be taken as one of them.
        at = 2 if len(rest) > 1 and not rest[1].startswith("-") else 1
        rest[at:at] = [*([] if model is None else [str(model)]), *inserted]
    return iter(rest)


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
        texts = [entry if isinstance(entry, str) else json.dumps(entry) for entry in value]
        return [flag, *texts]
    return [f"{flag}={value if isinstance(value, str) else json.dumps(value)}"]
