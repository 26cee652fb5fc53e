"""Translates a command line written for vLLM to the flags that are declared here."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from penstock_engine.vllm_flags import (
    ALIASES,
    RENAMED,
    SHORT,
    SWITCHES,
    VALUED,
    check_switch,
    check_value,
)

# Flags that take more than one value: `--api-key one two`.
SEVERAL = ("--api-key", "--lora-modules", "--served-model-name")


def in_click_words(words: Sequence[str]) -> list[str]:
    """Translates a vLLM command line to the words that click reads.

    Handles `--max_model_len`, `-tp 2`, several values after one flag, `--config FILE`, and flags that
    only vLLM has. Raises ValueError for a bad file, and for a vLLM flag that is refused.
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
        name = RENAMED.get(name, name)
        repeated = name if name in SEVERAL else ""
        if name in SWITCHES:
            check_switch(_switch(name, value) if equals else name)
        elif name in VALUED:
            check_value(name, value if equals else next(rest, None))
        elif name == "--model":  # the model is a positional argument here
            written += [value] if equals else []
        elif name in ALIASES and (said := value if equals else next(rest, None)) is not None:
            said = ALIASES[name].get(said, said)
            written += [f"{name}={said}"] if equals else [name, said]
        elif not repeated or equals:
            written.append(name + equals + value)
    return written


def _switch(name: str, value: str) -> str:
    """The switch that `name=value` means."""
    if value not in ("true", "false"):
        raise ValueError(f"{name} takes no value")
    if value == "true":
        return name
    base = name.removeprefix("--")
    opposite = f"--{base.removeprefix('no-')}" if base.startswith("no-") else f"--no-{base}"
    if opposite not in SWITCHES:
        raise ValueError(f"{name} takes no value")
    return opposite


def _with_file(words: Sequence[str]) -> Iterator[str]:
    """Insert the flags of a `--config` file before the explicit flags, which override them."""
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
        # Inserted after the command and its model, because a word after a flag with several values
        # would be taken as one of them.
        at = 2 if len(kept) > 1 and not kept[1].startswith("-") else 1
        kept[at:at] = [*([] if model is None else [str(model)]), *given]
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
        texts = [entry if isinstance(entry, str) else json.dumps(entry) for entry in value]
        return [flag, *texts]
    return [f"{flag}={value if isinstance(value, str) else json.dumps(value)}"]
