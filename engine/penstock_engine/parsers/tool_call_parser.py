"""Extracts tool calls from generated text. The result does not depend on how the text is chunked."""

from collections.abc import Collection
from enum import Enum

from penstock_engine.parsers.json_scan import JsonScanner
from penstock_engine.parsers.partial_tag import partial_tag_overlap
from penstock_engine.parsers.parts import Content, Part
from penstock_engine.parsers.tool_format import ToolFormat, read_calls

MAX_HEADER_CHARS = 200


class _State(Enum):
    START = "only white space so far"
    TEXT = "content"
    HEADER = "after an opening tag, before the JSON"
    JSON = "inside the JSON"
    AFTER = "after a call"


class ToolCallParser:
    """Splits generated text into content and complete tool calls.

    Text that only looks like a call of one of `names` is returned as content. White space before the
    first call of an answer and after each call is dropped. has_failed: whether text began like a call and
    was none, or was cut off inside one.
    """

    def __init__(self, form: ToolFormat, names: Collection[str]) -> None:
        self._form = form
        self._names = names
        self._state = _State.START
        self._rest = ""  # not parsed yet
        self._source: list[
            str
        ] = []  # text of the unfinished call, from its tag on; leading white space
        self._header = ""
        self._json: list[str] = []
        self._scanner = JsonScanner()
        self._parts: list[Part] = []
        self.has_failed = False

    def push(self, text: str) -> list[Part]:
        """Returns the content and the calls that are certain after this chunk."""
        self._rest += text
        while self._rest and self._advance():
            pass
        parts, self._parts = self._parts, []
        return parts

    def finish(self) -> list[Part]:
        """Returns the text held back so far. Call it once, after the last chunk."""
        if self._state is _State.AFTER:
            return []
        self.has_failed |= self._state in (_State.HEADER, _State.JSON)
        text = "".join(self._source) + self._rest
        return [Content(text)] if text else []

    def _advance(self) -> bool:
        """Makes one state transition. Returns False if more text is needed."""
        match self._state:
            case _State.START:
                return self._leave_start()
            case _State.TEXT:
                return self._find_opening()
            case _State.HEADER:
                return self._begin_json()
            case _State.JSON:
                return self._read_json()
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

    def _begin_json(self) -> bool:
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
        self._header = self._rest[:at]
        self._source.append(self._header)
        self._rest = self._rest[at:]
        self._scanner = JsonScanner()
        self._json = []
        self._state = _State.JSON
        return True

    def _read_json(self) -> bool:
        end = self._scanner.find_end(self._rest)
        self._json.append(self._rest[:end])
        self._source.append(self._rest[:end])
        self._rest = "" if end is None else self._rest[end:]
        if end is None:
            return False
        try:
            self._parts += read_calls(self._header, "".join(self._json), self._names)
        except (ValueError, RecursionError):
            self._emit_source()
        else:
            self._source = []
            self._state = _State.AFTER
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
