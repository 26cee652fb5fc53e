"""Extracts tool calls from generated text. The result does not depend on how the text is chunked."""

from collections.abc import Collection
from enum import Enum

from penstock_engine.parsers.call_reader import CallReader
from penstock_engine.parsers.partial_tag import partial_tag_overlap
from penstock_engine.parsers.parts import Call, Content, Part
from penstock_engine.parsers.tool_format import ToolFormat

MAX_HEADER_CHARS = 200


class _State(Enum):
    START = "only white space so far"
    TEXT = "content"
    HEADER = "after an opening tag, before the JSON"
    CALLS = "inside the JSON"
    AFTER = "after a call"


class ToolCallParser:
    """Splits generated text into content and tool calls.

    Text that only looks like a call of one of `names` is returned as content. White space before the
    first call of an answer and after each call is dropped. has_failed: whether text began like a call and
    was none, or a call was cut off or has arguments that are not JSON.
    """

    def __init__(
        self, form: ToolFormat, names: Collection[str], *, is_forced: bool = False
    ) -> None:
        """is_forced: whether a grammar lets the answer consist of calls only, so that it has no content."""
        self._form = form
        self._names = names
        self._is_forced = is_forced
        self._state = _State.START
        self._rest = ""  # not parsed yet
        self._source: list[str] = []  # text before the JSON, from the tag on; leading white space
        self._reader = CallReader(names, None, "")
        self._num_calls = 0  # of the readers before this one
        self._parts: list[Part] = []
        self.has_failed = False

    def push(self, text: str) -> list[Part]:
        """Returns the parts that are certain after this chunk."""
        self._rest += text
        while self._rest and self._advance():
            pass
        return self._take_parts()

    def finish(self) -> list[Part]:
        """Returns the text held back so far. Call it once, after the last chunk."""
        if self._state is _State.CALLS:
            self._parts += self._reader.finish()
            self.has_failed |= self._reader.has_failed or self._reader.is_rejected
        elif self._state is not _State.AFTER:
            self.has_failed |= self._state is _State.HEADER
            self._emit("".join(self._source) + self._rest)
        if self._is_forced and (name := self._cut_off_name()) is not None:
            self._parts.append(Call(name))
        return self._take_parts()

    def _take_parts(self) -> list[Part]:
        parts, self._parts = self._parts, []
        if self._is_forced:
            parts = [part for part in parts if not isinstance(part, Content)]
        return parts

    def _cut_off_name(self) -> str | None:
        """Returns the name of a forced call that was cut off before its arguments; None if unknown."""
        is_first = self._num_calls + self._reader.num_calls == 0
        has_text = self._state is not _State.START or bool(self._rest)
        if is_first and has_text and len(self._names) == 1:
            return next(iter(self._names))
        return self._reader.cut_off_name() if self._state is _State.CALLS else None

    def _advance(self) -> bool:
        """Makes one state transition. Returns False if more text is needed."""
        match self._state:
            case _State.START:
                return self._leave_start()
            case _State.TEXT:
                return self._find_opening()
            case _State.HEADER:
                return self._begin_calls()
            case _State.CALLS:
                return self._read_calls()
            case _State.AFTER:
                return self._skip_separators()

    def _leave_start(self) -> bool:
        if not self._skip_space():
            return False
        opening = self._form.opening
        if opening and opening.startswith(self._rest) and opening != self._rest:
            return False
        if opening and self._rest.startswith(opening):
            self._source.append(opening)
            self._rest = self._rest[len(opening) :]
            self._state = _State.HEADER
        elif self._is_bare():
            self._state = _State.HEADER
        else:
            self._emit_source()
        return True

    def _find_opening(self) -> bool:
        opening = self._form.opening
        at = self._rest.find(opening) if opening else -1
        if at >= 0:
            self._emit(self._rest[:at])
            self._source = [opening]
            self._rest = self._rest[at + len(opening) :]
            self._state = _State.HEADER
            return True
        certain = len(self._rest) - partial_tag_overlap(self._rest, opening)
        self._emit(self._rest[:certain])
        self._rest = self._rest[certain:]
        return False

    def _begin_calls(self) -> bool:
        if not self._skip_space():
            return False
        at = 0
        if self._rest[0] not in "{[":
            at = self._rest.find("{", 0, MAX_HEADER_CHARS) if self._form.has_header else -1
            if at < 0 and self._form.has_header and len(self._rest) < MAX_HEADER_CHARS:
                return False
        if at < 0:
            self._emit_source()
            return True
        name = self._rest[:at].partition("[")[0].strip() if at else None
        self._source.append(self._rest[:at])
        self._rest = self._rest[at:]
        self._num_calls += self._reader.num_calls
        self._reader = CallReader(self._names, name, "".join(self._source))
        self._source = []
        self._state = _State.CALLS
        return True

    def _read_calls(self) -> bool:
        reader = self._reader
        self._parts += reader.push(self._rest)
        self._rest = reader.take_rest()
        if not reader.is_finished:
            return False
        self.has_failed |= reader.has_failed or reader.is_rejected
        self._state = _State.TEXT if reader.is_rejected else _State.AFTER
        return True

    def _skip_separators(self) -> bool:
        self._rest = self._rest.lstrip()
        if not self._rest:
            return False
        for closing in self._form.after:
            if self._rest.startswith(closing):
                self._rest = self._rest[len(closing) :]
                return True
            if closing.startswith(self._rest):
                return False
        self._state = _State.HEADER if self._is_bare() else _State.TEXT
        return True

    def _is_bare(self) -> bool:
        return bool(self._form.bare) and self._rest.startswith(self._form.bare)

    def _skip_space(self) -> bool:
        """Moves leading white space to the source. Returns False if no other text has arrived."""
        stripped = self._rest.lstrip()
        self._source.append(self._rest[: len(self._rest) - len(stripped)])
        self._rest = stripped
        return bool(stripped)

    def _emit_source(self) -> None:
        """Emits the source as content, because it is not a call."""
        self.has_failed |= self._state is not _State.START
        self._emit("".join(self._source))
        self._source = []
        self._state = _State.TEXT

    def _emit(self, text: str) -> None:
        if text:
            self._parts.append(Content(text))
