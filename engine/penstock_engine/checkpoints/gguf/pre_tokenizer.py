"""How texts are split for a byte-level vocabulary, by tokenizer.ggml.pre, with llama.cpp's defaults.

A GGUF file names only the pre-tokenizer; what goes with the name is known to the program that reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock_engine.checkpoints.gguf.file import GgufFile
from penstock_engine.core.errors import ModelError


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Properties of a pre-tokenizer.

    ignores_merges: whether a word that is a token becomes that token, even if the merges would split it.
    adds_bos: whether texts begin with BOS in a file without add_bos_token. splits_digits: whether each
    digit is a word.
    """

    ignores_merges: bool = False
    adds_bos: bool = False
    splits_digits: bool = False


# SentencePiece vocabularies have no pre-tokenizer, and their texts begin with BOS.
SENTENCEPIECE = PreTokenizer(adds_bos=True)
BY_MERGES = PreTokenizer()
LLAMA3 = PreTokenizer(ignores_merges=True, adds_bos=True)
SINGLE_DIGITS = PreTokenizer(splits_digits=True)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
         "jina-v5-nano", "tekken"),
        LLAMA3,
    ),
    **dict.fromkeys(
        ("gpt-2", "phi-2", "dbrx", "smaug-bpe", "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2",
         "megrez", "qwen35", "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"),
        BY_MERGES,
    ),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        SINGLE_DIGITS,
    ),
}  # fmt: skip
KINDS = ("gpt2", "llama")


def pre_tokenizer_of(file: GgufFile) -> PreTokenizer:
    """The pre-tokenizer of a GGUF file. Raises ModelError if text cannot be split as in training."""
    kind, name = (file.metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
    if kind not in KINDS:
        raise ModelError(
            "BadTokenizer",
            f"tokenizer.ggml.model {kind!r} is not supported, only {', '.join(KINDS)}",
        )
    if kind == "llama":
        return SENTENCEPIECE
    if (found := PRE_TOKENIZERS.get(str(name))) is None:
        raise ModelError(
            "BadTokenizer",
            f"tokenizer.ggml.pre {name!r} is not known, so text cannot be split as trained",
        )
    return found
