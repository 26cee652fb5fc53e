"""How texts are split for a byte-level vocabulary, by tokenizer.ggml.pre, with llama.cpp's defaults.

A GGUF file names only the pre-tokenizer; what goes with the name is known to the program that reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass


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
