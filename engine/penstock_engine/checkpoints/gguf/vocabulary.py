"""Checks the tokens and the chat template of a GGUF file. Imports no transformers."""

from penstock_engine.checkpoints.gguf.file import GgufFile
from penstock_engine.checkpoints.gguf.pre_tokenizer import pre_tokenizer_of
from penstock_engine.core.errors import ModelError


def check_vocabulary(file: GgufFile, vocab_size: int) -> None:
    """Raise ModelError if text cannot be tokenized for a model of vocab_size tokens."""
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list):
        raise ModelError("NoTokenizer", "the file has no tokenizer.ggml.tokens")
    if len(tokens) > vocab_size:
        raise ModelError(
            "BadTokenizer", f"the file has {len(tokens)} tokens, the model only {vocab_size}"
        )
    chat_template_of(file)
    pre_tokenizer_of(file)


def chat_template_of(file: GgufFile) -> str | None:
    """The chat template in the file. Raises ModelError if it is not a text."""
    template = file.metadata.get("tokenizer.chat_template")
    if not isinstance(template, str | None):
        raise ModelError("BadTokenizer", "tokenizer.chat_template must be a text")
    return template
