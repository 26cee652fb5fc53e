"""Ids of a GGUF file's special tokens, with llama.cpp's rules for files that do not name them."""

from collections.abc import Mapping
from typing import Any

from penstock_engine.checkpoints.gguf.file import GgufFile

# Ids in SentencePiece vocabularies whose file has no such key.
SENTENCEPIECE_IDS: Mapping[str, int] = {
    "unknown_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
# Keys of tokens that end an answer: end of text, end of turn, end of a message to a tool.
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Tokens that end an answer in every vocabulary that has them. Many files name only the end of text.
END_TOKENS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>",
    "_<EOT>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<end_of_utterance>",
})  # fmt: skip


def token_id(file: GgufFile, key: str) -> Any:
    """The id that tokenizer.ggml.`key` has; None if the file has none."""
    found = file.metadata.get(f"tokenizer.ggml.{key}")
    if found is None and file.metadata.get("tokenizer.ggml.model") == "llama":
        return SENTENCEPIECE_IDS.get(key)
    return found


def end_token_ids(file: GgufFile) -> list[int]:
    """Ids of the tokens that end an answer, in ascending order."""
    named = {token_id(file, key) for key in END_KEYS} - {None}
    tokens = file.metadata.get("tokenizer.ggml.tokens") or ()
    return sorted(named | {index for index, token in enumerate(tokens) if token in END_TOKENS})
