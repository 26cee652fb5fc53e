"""Builds tokenizer and chat template from a GGUF file's metadata, with transformers."""

from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import (
    GGUF_PRE_TOKENIZER_SPLITS,
    GGUF_TOKENIZER_MAPPING,
    convert_gguf_tokenizer,
)

from penstock_engine.core.errors import ModelError
from penstock_engine.gguf_file.file import GgufFile

NAMED = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
# Names of pre-tokenizers that are missing in transformers' GGUF table.
GPT2 = ("gpt-2", "phi-2")
SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
KINDS = ("gpt2", "llama")


def load_tokenizer(file: GgufFile) -> PreTrainedTokenizerFast:
    """Build the tokenizer of a GGUF file. Raises ModelError if it is unknown or damaged."""
    keys = GGUF_TOKENIZER_MAPPING["tokenizer"].items()
    found = {f"tokenizer.{key}": name for key, name in keys}
    parts = {name: file.metadata[key] for key, name in found.items() if key in file.metadata}
    kind, split = parts.get("tokenizer_type"), parts.get("pre_tokenizer_type")
    if kind not in KINDS:
        raise _bad(f"tokenizer.ggml.model {kind!r} is not supported, only {', '.join(KINDS)}")
    if kind == "gpt2" and split not in (*GGUF_PRE_TOKENIZER_SPLITS, *GPT2, *SINGLE_DIGITS):
        raise _bad(f"tokenizer.ggml.pre {split!r} is not known, so text cannot be split as trained")
    template = file.metadata.get("tokenizer.chat_template")
    if not isinstance(template, str | None):
        raise _bad("tokenizer.chat_template must be a text")
    try:
        backend, _ = convert_gguf_tokenizer(file.architecture, parts)
        if kind == "gpt2" and split in SINGLE_DIGITS:
            backend.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(individual_digits=True), backend.pre_tokenizer]
            )
        return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=_NoDeepCopy(backend),
            add_bos_token=bool(file.metadata.get("tokenizer.ggml.add_bos_token", kind == "llama")),
            add_eos_token=bool(file.metadata.get("tokenizer.ggml.add_eos_token", False)),
            chat_template=template,
            clean_up_tokenization_spaces=False,
            **_named(file, parts["tokens"]),
        )
    except Exception as error:  # tokenizers raises nothing more specific
        raise _bad("the tokenizer in the file cannot be read") from error


@dataclass(frozen=True, slots=True)
class _NoDeepCopy:
    """Wraps a tokenizer for transformers, whose deepcopy would take a second for a large vocabulary."""

    backend: Tokenizer

    def __deepcopy__(self, _: object) -> Tokenizer:
        return self.backend


def _named(file: GgufFile, tokens: list[str]) -> dict[str, Any]:
    ids = {name: file.metadata.get(f"tokenizer.ggml.{key}") for name, key in NAMED.items()}
    return {name: None if i is None else tokens[i] for name, i in ids.items()}


def _bad(message: str) -> ModelError:
    return ModelError("BadTokenizer", message)
