"""Checks whether an adapter was made for the served model: its base model, tokens and chat template."""

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_engine.core.errors import ModelError
from penstock_engine.files.json_reader import parse_json, read_json_object
from penstock_engine.lora.adapter_files import AdapterFolder

logger = logging.getLogger(__name__)

HUB_NAME = re.compile(r"\A[\w.-]+/[\w.-]+\Z")
# Ends of the names of quantized copies, whose adapters fit the model itself.
QUANTIZED = re.compile(
    r"(-unsloth)?(-(bnb-)?[48]bit|-awq|-gptq|-gguf|-fp8|-int[48]|-w\da\d+)+\Z", re.IGNORECASE
)
# The list of added tokens is near the start of tokenizer.json, before the vocabulary.
TOKENIZER_NAME, MAX_TOKENIZER_BYTES = "tokenizer.json", 1 << 20
ADDED_TOKENS = '"added_tokens"'
SETTINGS_NAME, TEMPLATE_NAME = "tokenizer_config.json", "chat_template.jinja"
MAX_SETTINGS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BaseModel:
    """Facts about the served model that adapters are compared with.

    names: under which the served model is known, first its hub name; empty: it is not known. token_id: id
    of a token in the model's tokenizer, None for one that it lacks; None: unknown. has_template: whether the
    engine has a chat template.
    """

    names: tuple[str, ...] = ()
    token_id: Callable[[str], int | None] | None = None
    has_template: bool = True

    def check(self, config: Mapping[str, Any], folder: AdapterFolder) -> None:
        """Raise ModelError if the adapter needs other tokens or a template; what is unknown passes.

        Another name of the base model is only logged: the name that a fine-tuned model records is often that
        of the model it was made from.
        """
        name = config.get("base_model_name_or_path")
        if not self._is_named(name):
            logger.warning(
                "adapter %s was made for %s, and the served model is known as %s: its answers are wrong if "
                "these are different models", folder.path.name, str(name)[:128], self.names[0][:128],
            )  # fmt: skip
        self._check_tokens(_added_tokens(folder))
        if not self.has_template and _has_template(folder):
            raise ModelError(
                "ChatTemplateAdded",
                "the adapter has a chat template, and the engine has none: set --chat-template",
            )

    def _is_named(self, name: Any) -> bool:
        """Whether a name may be the served model's. A path, or no name, may be any model's."""
        is_hub_name = isinstance(name, str) and HUB_NAME.match(name)
        return not self.names or not is_hub_name or _bare(name) in map(_bare, self.names)

    def _check_tokens(self, added: Mapping[str, int]) -> None:
        if self.token_id is None:
            return
        for text, token_id in added.items():
            if self.token_id(text) != token_id:
                raise ModelError(
                    "TokenizerChanged",
                    f"the adapter's tokenizer has token {text[:64]!r} with number {token_id}, and the "
                    "model's has not: merge the adapter into its model",
                )


def recorded_names(model_dir: Path, aliases: Iterable[str]) -> tuple[str, ...]:
    """Names of a model whose config.json records a hub name; else none.

    aliases: other names, by which an adapter's base model is accepted as well.
    """
    try:
        recorded = read_json_object(model_dir / "config.json").get("_name_or_path")
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a GGUF file has none
        return ()
    if not isinstance(recorded, str) or HUB_NAME.match(recorded) is None:
        return ()
    return recorded, model_dir.resolve().name, *aliases


def _bare(name: str) -> str:
    """Last part of a hub name, without what says how a copy is quantized.

    Nor has it the prefix meta-, which renamed repositories lack.
    """
    return QUANTIZED.sub("", name.rpartition("/")[2]).casefold().removeprefix("meta-")


def _added_tokens(folder: AdapterFolder) -> dict[str, int]:
    """Added tokens in the adapter's folder: ids by text. Empty if they cannot be read."""
    tokens = _read_json(folder, "added_tokens.json", MAX_SETTINGS_BYTES)
    tokens |= {entry["content"]: entry["id"] for entry in _tokenizer_entries(folder)}
    return {text: number for text, number in tokens.items() if isinstance(number, int)}


def _tokenizer_entries(folder: AdapterFolder) -> list[dict[str, Any]]:
    if not folder.has(TOKENIZER_NAME):
        return []
    try:
        text = folder.read(TOKENIZER_NAME, MAX_TOKENIZER_BYTES).decode(errors="replace")
        place = text.index("[", text.index(ADDED_TOKENS))
        entries, _ = json.JSONDecoder().raw_decode(text, place)
        return [each for each in entries if isinstance(each["content"], str) and "id" in each]
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, ModelError):
            raise
        return []


def _has_template(folder: AdapterFolder) -> bool:
    if folder.has(TEMPLATE_NAME):
        return True
    return bool(_read_json(folder, SETTINGS_NAME, MAX_SETTINGS_BYTES).get("chat_template"))


def _read_json(folder: AdapterFolder, name: str, max_bytes: int) -> dict[str, Any]:
    """A JSON object; empty if there is none. Raises ModelError (OutsideLoraDir, NotAFile)."""
    if not folder.has(name):
        return {}
    try:
        content = parse_json(folder.read(name, max_bytes))
    except (FileNotFoundError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        return {}
    return content if isinstance(content, dict) else {}
