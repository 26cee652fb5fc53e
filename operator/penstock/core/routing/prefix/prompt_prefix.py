"""Hashes of the beginnings of a prompt, by which gateways know prompts that begin alike.

A gateway has no tokenizer, so the beginnings are those of the prompt's text. Two prompts whose texts are
alike up to a boundary have the same hash there, and at all boundaries before it:

    boundaries   every 256 bytes, from 4 KiB on every 1/16 of the position

So a prompt of any length has few hashes (130 at 4 MiB), and where two prompts part is known to 6 %.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

# Distance of the first boundaries in bytes: 64 tokens of English text, four blocks of an engine.
FIRST_STEP_BYTES = 256
# Later boundaries are apart by this part of their position.
STEP_FRACTION = 1 / 16
# Position of the last boundary: the longest body that a gateway takes by default.
LAST_BYTES = 4 << 20


def _boundaries() -> Iterator[int]:
    position = FIRST_STEP_BYTES
    while position <= LAST_BYTES:
        yield position
        position += max(FIRST_STEP_BYTES, int(position * STEP_FRACTION))


BOUNDARIES = tuple(_boundaries())


class PromptPrefix(NamedTuple):
    """Beginnings of a prompt, the shortest first.

    hashes: of each beginning. ends: their lengths, in bytes of text. length: of the whole prompt.
    """

    hashes: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    length: int = 0

    def with_space(self, space: str) -> "PromptPrefix":
        """Beginnings that equal only those of the same space, such as the adapter that computes them."""
        if not space:
            return self
        return self._replace(hashes=tuple(hash((each, space)) for each in self.hashes))


NO_PREFIX = PromptPrefix()


def hash_text(text: bytes, salt: bytes = b"") -> PromptPrefix:
    """Hash the beginnings of the text of a prompt.

    salt: prompts share beginnings only with those of the same one. The hashes are Python's own, which differ
    from process to process: nobody can send two prompts with the same hash on purpose.
    """
    hashes, last, start = [], hash(salt), 0
    ends = BOUNDARIES[: bisect_right(BOUNDARIES, len(text))]
    for end in ends:
        last = hash((last, text[start:end]))
        hashes.append(last)
        start = end
    return PromptPrefix(tuple(hashes), ends, len(text))
