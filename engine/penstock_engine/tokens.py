"""Text <-> tokens: the model's tokenizer and chat template, and decoding as tokens arrive."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast

from penstock_engine.core.errors import ModelError

REPLACEMENT = "\ufffd"


class TemplateRefused(ValueError):
    """The chat template does not take these messages."""


class Tokenizer:
    """The tokenizer of one model folder. Methods are pure CPU work; call them off the event loop."""

    def __init__(self, model_dir: Path) -> None:
        """Raises ModelError when the files cannot be read."""
        try:
            self._tokenizer = PreTrainedTokenizerFast.from_pretrained(
                str(model_dir), local_files_only=True
            )
        except (OSError, ValueError, KeyError) as error:
            raise ModelError("NoTokenizer", "the tokenizer cannot be read") from error
        self._backend = self._tokenizer.backend_tokenizer

    @property
    def has_chat_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return ids

    def encode_chat(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Raises TemplateRefused. The template is the model's own and runs in a sandbox."""
        try:
            text = self._tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise TemplateRefused(
                "the model's chat template does not take these messages"
            ) from error
        return self.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    @property
    def vocab_size(self) -> int:
        size: int = len(self._tokenizer)
        return size


class TextStream:
    """Text as tokens arrive: whole characters only, and nothing that may be part of a stop string.

    Only the tail that is not text yet is decoded again, so the cost of a token does not grow with
    the length of the answer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        *,
        include_stop: bool = False,
        skip_special_tokens: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = [text for text in stop if text]
        self._include_stop = include_stop
        self._skip = skip_special_tokens
        self._ids: list[int] = []
        self._prefix = 0  # tokens before this only give context to those after
        self._read = 0  # tokens before this are in the text
        self._held = ""  # text that could be the beginning of a stop string
        self.stopped = False

    def push(self, token_id: int) -> str:
        """The text that this token makes certain. After a stop string, `stopped` is true."""
        self._ids.append(token_id)
        return self._release(self._new_text(final=False), final=False)

    def finish(self) -> str:
        """What was held back, when no more tokens come."""
        return "" if self.stopped else self._release(self._new_text(final=True), final=True)

    def _new_text(self, *, final: bool) -> str:
        before = self._decode(self._ids[self._prefix : self._read])
        now = self._decode(self._ids[self._prefix :])
        if len(now) <= len(before) or (now.endswith(REPLACEMENT) and not final):
            return ""  # the bytes of a character are not complete
        self._prefix, self._read = self._read, len(self._ids)
        return now[len(before) :]

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip)

    def _release(self, new: str, *, final: bool) -> str:
        text = self._held + new
        self._held = ""
        hits = [(at, stop) for stop in self._stop if (at := text.find(stop)) >= 0]
        if hits:
            self.stopped = True
            at, stop = min(hits)
            return text[: at + len(stop)] if self._include_stop else text[:at]
        if final:
            return text
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        if keep:
            text, self._held = text[:-keep], text[-keep:]
        return text


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
