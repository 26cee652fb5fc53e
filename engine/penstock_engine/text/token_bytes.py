"""The bytes that tokens stand for. A token may be a part of a character, which has no text of its own."""

import json
import re
from typing import Any

import tokenizers
from transformers.convert_slow_tokenizer import bytes_to_unicode

# Tokens of a byte in vocabularies of SentencePiece, such as <0xE2>.
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
# The characters that byte-level vocabularies write bytes as, which are those of GPT-2.
BYTE_ALPHABET = {char: byte for byte, char in bytes_to_unicode().items()}  # type: ignore[no-untyped-call]


class TokenBytes:
    """Reads the bytes of tokens as the tokenizer's decoder does, but of each token alone.

    So tokens keep a space at their beginning, which decoders drop at the beginning of a text.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._added = backend.get_added_tokens_decoder()
        decoder = backend.decoder
        state: dict[str, Any] = {} if decoder is None else json.loads(decoder.__getstate__())
        self._steps: list[dict[str, Any]] = state.get("decoders", [state])

    def read(self, token_id: int) -> bytes:
        """Returns the bytes of a token; none for an id that the tokenizer does not have."""
        if token_id in self._added:
            return str(self._added[token_id].content).encode()
        word = self._backend.id_to_token(token_id) or ""
        for step in self._steps:
            match step:
                case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:
                    word = word.replace(pattern, content)
                case {"type": "Metaspace", "replacement": replacement}:
                    word = word.replace(replacement, " ")
                case {"type": "ByteFallback"} if byte := BYTE_TOKEN.fullmatch(word):
                    return bytes.fromhex(byte[1])
                case {"type": "ByteLevel"} if all(char in BYTE_ALPHABET for char in word):
                    return bytes(BYTE_ALPHABET[char] for char in word)
        return word.encode()
