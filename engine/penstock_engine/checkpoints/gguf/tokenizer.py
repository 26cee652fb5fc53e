"""Builds tokenizer and chat template from a GGUF file's metadata, with transformers."""

from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import (
    GGUF_TOKENIZER_MAPPING,
    convert_gguf_tokenizer,
)

from penstock_engine.checkpoints.gguf.file import GgufFile
from penstock_engine.checkpoints.gguf.pre_tokenizer import PreTokenizer, pre_tokenizer_of
from penstock_engine.checkpoints.gguf.special_tokens import token_id
from penstock_engine.checkpoints.gguf.vocabulary import chat_template_of
from penstock_engine.core.errors import ModelError

NAMED = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


def load_tokenizer(file: GgufFile) -> PreTrainedTokenizerFast:
    """Build the tokenizer of a GGUF file. Raises ModelError if it is unknown or damaged."""
    split = pre_tokenizer_of(file)
    template = chat_template_of(file)
    try:
        return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=_NoDeepCopy(_backend(file, split)),
            add_bos_token=bool(file.metadata.get("tokenizer.ggml.add_bos_token", split.adds_bos)),
            add_eos_token=bool(file.metadata.get("tokenizer.ggml.add_eos_token", False)),
            chat_template=template,
            clean_up_tokenization_spaces=False,
            **_named(file, file.metadata["tokenizer.ggml.tokens"]),
        )
    except Exception as error:  # tokenizers raises nothing more specific
        raise ModelError("BadTokenizer", "the tokenizer in the file cannot be read") from error


def _backend(file: GgufFile, split: PreTokenizer) -> Tokenizer:
    keys = {f"tokenizer.{key}": name for key, name in GGUF_TOKENIZER_MAPPING["tokenizer"].items()}
    parts = {name: file.metadata[key] for key, name in keys.items() if key in file.metadata}
    backend, _ = convert_gguf_tokenizer(file.architecture, parts)
    if split.ignores_merges:
        backend.model.ignore_merges = True
    if split.splits_digits:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), backend.pre_tokenizer]
        )
    has_prefix = isinstance(backend.pre_tokenizer, pre_tokenizers.Metaspace)
    if has_prefix and file.metadata.get("tokenizer.ggml.add_space_prefix") is False:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        backend.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
    return backend


@dataclass(frozen=True, slots=True)
class _NoDeepCopy:
    """Wraps a tokenizer for transformers, whose deepcopy would take a second for a large vocabulary."""

    backend: Tokenizer

    def __deepcopy__(self, _: object) -> Tokenizer:
        return self.backend


def _named(file: GgufFile, tokens: list[str]) -> dict[str, Any]:
    ids = {name: token_id(file, key) for name, key in NAMED.items()}
    return {name: None if i is None else tokens[i] for name, i in ids.items()}
