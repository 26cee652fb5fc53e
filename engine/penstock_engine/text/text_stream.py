"""Incremental detokenization."""

from collections.abc import Sequence

from penstock_engine.parsers.partial_tag import partial_tag_overlap
from penstock_engine.text.tokens import Tokenizer

REPLACEMENT = "\ufffd"

# A character has up to four bytes, and a token at least one.
MAX_CHARACTER_TOKENS = 4
# Last tokens of a prompt that decoding its continuation may depend on: a token before it, and a
# character that is cut.
CONTEXT_TOKENS = 2 * MAX_CHARACTER_TOKENS
# Bound on consecutive tokens without text, such as special ones, that are decoded together.
MAX_HELD_TOKENS = 16


class TextStream:
    """Incremental detokenizer that returns whole characters, and holds back possible stop strings.

    Only tokens at the end that are not returned as text yet are decoded again, so that the cost of a
    token does not grow with the length of the answer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        *,
        min_tokens: int = 0,
        forced_opening: str = "",
        include_stop: bool = False,
        skip_special_tokens: bool = True,
        after: Sequence[int] = (),
    ) -> None:
        """min_tokens: number of first tokens in whose text stop strings are ignored. forced_opening: text
        that a grammar forces an answer to begin with; stop strings apply after it. after: tokens before
        the text; without any, SentencePiece drops the first space."""
        self._tokenizer = tokenizer
        self._stop_strings = stop
        self._min_tokens = min_tokens
        self._forced_opening = forced_opening
        self._tail = ""  # text that could be the beginning of the forced opening
        self._include_stop = include_stop
        self._skip = skip_special_tokens
        self._ids = list(after[-CONTEXT_TOKENS:])
        self._num_pushed = 0
        self._prefix = 0  # tokens before this only give context to those after
        self._read = len(self._ids)  # tokens before this are in the text
        self._held = ""  # text that could be the beginning of a stop string
        self.stop: str | None = None  # the stop string that was met

    def push(self, token_id: int) -> str:
        """Add a token; returns the text that is final now. After a stop string, `stop` is set."""
        self._ids.append(token_id)
        self._num_pushed += 1
        return self._advance(final=False)

    def finish(self) -> str:
        """The text that was held back; to be called after the last token."""
        return "" if self.stop is not None else self._advance(final=True)

    def _advance(self, *, final: bool) -> str:
        text = self._new_text(final=final)
        num_ignored = self._num_before_stops(text)
        if self._num_pushed <= self._min_tokens and not final:
            return text
        return text[:num_ignored] + self._release(text[num_ignored:], final=final)

    def _num_before_stops(self, new: str) -> int:
        """Number of characters of new text up to the end of the forced opening."""
        if not self._forced_opening:
            return 0
        text = self._tail + new
        at = text.find(self._forced_opening)
        if at < 0:
            self._tail = text[max(0, len(text) - len(self._forced_opening) + 1) :]
            return len(new)
        num_after = len(text) - at - len(self._forced_opening)
        self._forced_opening = ""
        return len(new) - num_after

    def _new_text(self, *, final: bool) -> str:
        before = self._decode(self._ids[self._prefix : self._read])
        now = self._decode(self._ids[self._prefix :])
        end = len(self._ids)
        if now.endswith(REPLACEMENT) and not final:
            # The bytes of a character are not complete. No character has more than
            # MAX_CHARACTER_TOKENS, so what lies further back never will be.
            end -= MAX_CHARACTER_TOKENS - 1
            if end - self._read < MAX_CHARACTER_TOKENS:
                return ""
            now = self._decode(self._ids[self._prefix : end])
        if not now.startswith(before):
            before = before.rstrip(REPLACEMENT)  # `after` ended within a character, complete by now
        if len(now) <= len(before):
            if end - self._read >= MAX_HELD_TOKENS:
                del self._ids[self._read :]
            return ""
        self._prefix, self._read = self._read, end
        return now[len(before) :]

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip)

    def _release(self, new: str, *, final: bool) -> str:
        text = self._held + new
        self._held = ""
        hits = [(at, stop) for stop in self._stop_strings if (at := text.find(stop)) >= 0]
        if hits:
            at, stop = min(hits)
            self.stop = stop
            return text[: at + len(stop)] if self._include_stop else text[:at]
        overlaps = (partial_tag_overlap(text, stop) for stop in self._stop_strings)
        keep = 0 if final else max(overlaps, default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]
