"""Reads the calls in a JSON text that arrives in chunks."""

import io
import re
from collections.abc import Collection
from enum import Enum

from penstock_engine.parsers.json_scan import JsonScanner, parse_object
from penstock_engine.parsers.parts import Call, CallArguments, Content, Part
from penstock_engine.parsers.tool_format import name_before_arguments, read_call

# Bounds the text before a call's arguments in which their beginning is looked for, because it is parsed
# anew at each object in it. A tool's name has 64 characters at most; longer texts are read when whole.
MAX_HEAD_CHARS = 1024

_NAME = re.compile(r'\{\s*"name"\s*:\s*"([^"\\]*)"')


class _State(Enum):
    START = "before the JSON"
    BETWEEN = "before a call"
    HEAD = "in a call, before its arguments"
    ARGUMENTS = "in the arguments of a call"
    TAIL = "just after the arguments"
    OTHER_KEYS = "in a call, in the keys after its arguments"
    REJECTED = "in JSON that is neither a call nor a list of calls"
    END = "after the JSON"


class CallReader:
    """Reads one JSON text, which is a call or a list of calls, as it arrives.

    A call begins once its name and the bracket that opens its arguments have been read. If its name comes
    later, or its arguments are no object, it begins at its end. JSON that turns out to be no call is
    content, from the end of the last call on.

    num_calls: calls that have begun. is_rejected: whether some of the JSON was no call. has_failed:
    whether a call was cut off, or has arguments that are not JSON.
    """

    def __init__(self, names: Collection[str], name: str | None, lead: str) -> None:
        """names: the tools that may be called. name: the call's name, if the JSON is only its arguments;
        None if the JSON has the names. lead: text before the JSON that is content if no call begins."""
        self._names = names
        self._name = name
        self._scanner = JsonScanner()
        self._state = _State.START
        self._parts: list[Part] = []
        # Text since the last call, up to the beginning of the next one.
        self._source = _buffer(lead)
        self._call_at = 0  # where in the source a call begins
        self._call_depth = 1  # open brackets in a call, outside of its values
        self._arguments = _buffer()
        self._wants_comma = False
        self.num_calls = 0
        self._rest = ""
        self.is_rejected = False
        self.has_failed = False

    @property
    def is_finished(self) -> bool:
        return self._state is _State.END

    def push(self, text: str) -> list[Part]:
        """Returns the parts that are certain after this chunk."""
        self._rest += text
        while self._rest and not self.is_finished and self._advance():
            pass
        parts, self._parts = self._parts, []
        return parts

    def take_rest(self) -> str:
        """Returns the text after the JSON, once."""
        rest, self._rest = self._rest, ""
        return rest

    def finish(self) -> list[Part]:
        """Returns the text held back so far. Call it once, after the last chunk."""
        self.has_failed |= self._state in (_State.HEAD, _State.ARGUMENTS) or self.num_calls == 0
        is_separator = self._state is _State.BETWEEN and self.num_calls > 0
        source = self._source.getvalue() + self._rest
        return [Content(source)] if source and not is_separator else []

    def cut_off_name(self) -> str | None:
        """Returns the name of a call that was cut off before its arguments; None if it is not known."""
        found = _NAME.match(self._source.getvalue(), self._call_at)
        return (
            found[1] if self._state is _State.HEAD and found and found[1] in self._names else None
        )

    def _advance(self) -> bool:
        """Makes one state transition. Returns False if more text is needed."""
        match self._state:
            case _State.START:
                return self._enter()
            case _State.BETWEEN:
                return self._begin_object()
            case _State.HEAD:
                return self._read_head()
            case _State.ARGUMENTS:
                return self._read_arguments()
            case _State.TAIL:
                return self._leave_arguments()
            case _State.OTHER_KEYS:
                return self._skip_other_keys()
            case _State.REJECTED:
                return self._pass_rejected()
            case _State.END:
                raise AssertionError("the JSON has ended")

    def _enter(self) -> bool:
        if self._name is not None:
            if self._name not in self._names:
                return self._reject()
            self._call_depth = 0
            self._begin_call(self._name)
            return True
        if self._rest[0] == "[":
            self._call_depth = 2
            self._take_bracket()
        self._state = _State.BETWEEN
        return True

    def _begin_object(self) -> bool:
        """Begins the object of a call, or passes what separates calls in a list."""
        text = self._rest.lstrip()
        self._take(len(self._rest) - len(text))
        if not text:
            return False
        if text[0] == "{" and not self._wants_comma:
            self._call_at = self._source.tell()
            self._take_bracket()
            self._state = _State.HEAD
        elif text[0] == "," and self._wants_comma:
            self._take(1)
            self._wants_comma = False
        elif text[0] == "]" and self._wants_comma:
            self._take_bracket()
            self._source = _buffer()
            self._state = _State.END
        else:
            return self._reject()
        return True

    def _read_head(self) -> bool:
        for end, depth in self._scanner.brackets(self._rest):
            if depth < self._call_depth:
                self._take(end)
                return self._read_whole_call()
            is_object = depth == self._call_depth + 1 and self._rest[end - 1] == "{"
            if is_object and self._source.tell() - self._call_at + end <= MAX_HEAD_CHARS:
                head = self._source.getvalue()[self._call_at :] + self._rest[: end - 1]
                name = name_before_arguments(head, self._names)
                if name is not None:
                    self._rest = self._rest[end:]
                    self._begin_call(name)
                    self._append_arguments("{")
                    return True
        self._take(len(self._rest))
        return False

    def _read_whole_call(self) -> bool:
        source = self._source.getvalue()[self._call_at :]
        try:
            name, arguments = read_call(source, self._names)
        except (ValueError, RecursionError):
            return self._reject()
        self._begin_call(name)
        self._append_arguments(arguments)
        self._end_call()
        return True

    def _read_arguments(self) -> bool:
        for end, depth in self._scanner.brackets(self._rest):
            if depth == self._call_depth:
                self._append_arguments(self._rest[:end])
                self._rest = self._rest[end:]
                self.has_failed |= parse_object(self._arguments.getvalue()) is None
                self._state = _State.TAIL if self._name is None else _State.END
                return True
        self._append_arguments(self._rest)
        self._rest = ""
        return False

    def _leave_arguments(self) -> bool:
        self._rest = self._rest.lstrip()
        if not self._rest:
            return False
        if self._rest[0] in ",}":
            self._state = _State.OTHER_KEYS
        else:  # the bracket that closes the call is missing
            self._state = _State.END
        return True

    def _skip_other_keys(self) -> bool:
        for end, depth in self._scanner.brackets(self._rest):
            if depth < self._call_depth:
                self._rest = self._rest[end:]
                self._end_call()
                return True
        self._rest = ""
        return False

    def _pass_rejected(self) -> bool:
        end = self._scanner.find_end(self._rest)
        self._parts.append(Content(self._rest[:end]))
        self._rest = "" if end is None else self._rest[end:]
        if end is not None:
            self._state = _State.END
        return True

    def _reject(self) -> bool:
        """Emits the source as content, because it is no call. The text up to the end of the JSON follows."""
        has_ended = self._state is _State.HEAD and self._scanner.depth == 0
        self._state = _State.END if has_ended else _State.REJECTED
        self.is_rejected = True
        self._parts.append(Content(self._source.getvalue()))
        self._source = _buffer()
        return True

    def _begin_call(self, name: str) -> None:
        self._parts.append(Call(name))
        self._source = _buffer()
        self._arguments = _buffer()
        self._state = _State.ARGUMENTS
        self.num_calls += 1

    def _append_arguments(self, text: str) -> None:
        self._arguments.write(text)
        self._parts.append(CallArguments(text))

    def _end_call(self) -> None:
        self._wants_comma = True
        self._state = _State.END if self._call_depth == 1 else _State.BETWEEN

    def _take(self, num_chars: int) -> None:
        """Moves text to the source."""
        self._source.write(self._rest[:num_chars])
        self._rest = self._rest[num_chars:]

    def _take_bracket(self) -> None:
        next(self._scanner.brackets(self._rest))
        self._take(1)


def _buffer(text: str = "") -> io.StringIO:
    buffer = io.StringIO(newline="")  # keeps line ends as they are
    buffer.write(text)
    return buffer
