"""Checks a tokenizer by its files, and finds the token that ends an answer. Imports no transformers."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from penstock_engine.checkpoints.gguf.file import find_gguf, read_gguf
from penstock_engine.checkpoints.gguf.special_tokens import end_token_ids
from penstock_engine.checkpoints.gguf.vocabulary import check_vocabulary
from penstock_engine.core.errors import ModelError
from penstock_engine.files.json_reader import read_json_object
from penstock_engine.text.vocabulary import UnreadableTokenizerError, read_vocabulary

TOKENIZER_NAME, SETTINGS_NAME = "tokenizer.json", "tokenizer_config.json"
SPECIAL_TOKENS_NAME = "special_tokens_map.json"


def check_tokenizer(place: Path, vocab_size: int) -> frozenset[int]:
    """Check the tokenizer of a model. Returns the ids of its tokens that end an answer.

    place: folder or GGUF file. vocab_size: of the model. Raises ModelError (NoTokenizer, BadTokenizer).
    """
    if (gguf := find_gguf(place)) is not None:
        file = read_gguf(gguf)
        check_vocabulary(file, vocab_size)
        return frozenset(end_token_ids(file))
    path = place / TOKENIZER_NAME
    if not path.is_file():
        raise ModelError("NoTokenizer", f"the folder has no {TOKENIZER_NAME}")
    status = path.stat()
    eos_token = _eos_token(place)
    top, end = _read(path, eos_token, status.st_mtime_ns, status.st_size)
    if top >= vocab_size:
        raise ModelError(
            "BadTokenizer",
            f"{TOKENIZER_NAME} has token {top}, but the model has only {vocab_size} tokens",
        )
    return frozenset() if end is None else frozenset({end})


# In one process, `serve` checks a model more than once, and a large vocabulary takes half a second.
@lru_cache(maxsize=2)
def _read(
    path: Path, eos_token: str | None, _mtime_ns: int, _num_bytes: int
) -> tuple[int, int | None]:
    """The largest id of the vocabulary without added tokens, and the id of eos_token."""
    try:
        return read_vocabulary(path, eos_token)
    except UnreadableTokenizerError as error:
        raise ModelError("BadTokenizer", f"{path.name} {error}") from error


def _eos_token(folder: Path) -> str | None:
    """The tokenizer's eos_token, from where transformers reads it."""
    settings = read_settings(folder / SETTINGS_NAME)
    token = settings.get("eos_token")
    if "added_tokens_decoder" not in settings:
        token = read_settings(folder / SPECIAL_TOKENS_NAME).get("eos_token", token)
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def read_settings(path: Path) -> dict[str, Any]:
    """Settings of the tokenizer in a file; empty if there is none. Raises ModelError (BadTokenizer)."""
    if not path.is_file():
        return {}
    try:
        return read_json_object(path)
    except ValueError as error:
        raise ModelError("BadTokenizer", str(error)) from error
