"""Bounds the length of numbers in JSON, because models are known to fill their context with digits."""

from collections.abc import Callable, Iterable, Sequence

from llguidance import LLTokenizer

# Digits in a row after which a number ends, if its schema allows. A double has 17, an integer of 64 bits 20.
MAX_DIGITS = 20

_DIGITS = b"0123456789"


class NumberLimit:
    """Ends long numbers in JSON. It knows the tokens of one vocabulary by the digits in them."""

    def __init__(self, tokenizer: LLTokenizer) -> None:
        texts = [tokenizer.decode_bytes([token_id]) for token_id in range(tokenizer.vocab_size)]
        self._num_last_digits = [len(text) - len(text.rstrip(_DIGITS)) for text in texts]
        self._is_number = [bool(text) and not text.strip(_DIGITS) for text in texts]
        self._first_digits = _bits(texts, lambda text: text[:1].isdigit())
        # Tokens that a number never allows, and a string nearly everywhere.
        self._in_strings = _bits(texts, lambda text: text in (b'"', b"z"))

    def apply(self, tokens: Sequence[int], bits: memoryview) -> None:
        """Forbids further digits of a number that has enough of them, if something else may follow.

        tokens: generated so far. bits: mask of the tokens that the grammar allows next, changed in place.
        """
        if self._num_digits(tokens) < MAX_DIGITS:
            return
        allowed = int.from_bytes(bits, "little")
        others = allowed & ~self._first_digits
        if others and not allowed & self._in_strings:
            bits[:] = others.to_bytes(len(bits), "little")

    def _num_digits(self, tokens: Sequence[int]) -> int:
        """Returns the number of digits at the end of the text, or any number above the limit."""
        num_digits = 0
        for token_id in reversed(tokens):
            num_digits += self._num_last_digits[token_id]
            if num_digits >= MAX_DIGITS or not self._is_number[token_id]:
                break
        return num_digits


def _bits(texts: Iterable[bytes], holds: Callable[[bytes], bool]) -> int:
    """Returns the mask of the tokens whose text fulfils a condition."""
    digits = "".join("1" if holds(text) else "0" for text in texts)
    return int(digits[::-1], 2)
