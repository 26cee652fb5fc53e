"""Builds OpenAI's chat messages and deltas from generated text."""

import secrets
import string
from collections.abc import Callable

from penstock_engine.parsers.parts import Call, CallArguments, Content, Part, Reasoning
from penstock_engine.server.generation.answer_format import AnswerFormat
from penstock_engine.server.generation.generator import Piece
from penstock_engine.server.transport.json_text import Json

ID_CHARS = string.ascii_letters + string.digits


class ChatMessageBuilder:
    """Builds the message of one choice. Takes its pieces in order, or one piece with all of them.

    on_failed_call: called at the end of an answer with a tool call that was none, was cut off or is not JSON.
    """

    def __init__(self, answer_format: AnswerFormat, on_failed_call: Callable[[], None]) -> None:
        self._format = answer_format
        self._on_failed_call = on_failed_call
        self._parser = answer_format.new_parser()
        self._num_calls = 0
        self._is_dropped = False  # whether the open call is one more than the request allows

    def delta(self, piece: Piece) -> Json:
        """Returns the fields that this piece adds to the message; empty if its text is held back."""
        parts = self._parser.push(piece.text)
        if piece.finish_reason is not None:
            parts += self._parser.finish()
            if self._parser.has_failed_call:
                self._on_failed_call()
        return self._fields(parts)

    def message(self, whole: Piece) -> Json:
        """Returns the whole message. whole: all pieces joined."""
        fields = self.delta(whole)
        for call in fields.get("tool_calls", ()):
            del call["index"]
        content = self._format.echoed + fields.get("content", "")
        is_all = not self._num_calls and "reasoning" not in fields
        message = {"role": self._format.role, "content": content if content or is_all else None}
        return {"reasoning": None} | fields | message

    def finish_reason(self, piece: Piece) -> str | None:
        """Returns OpenAI's finish reason: tool_calls, except for a call that the request named."""
        if piece.finish_reason == "stop" and self._num_calls and not self._format.is_named:
            return "tool_calls"
        return piece.finish_reason

    def _fields(self, parts: list[Part]) -> Json:
        fields: Json = {}
        for part in parts:
            match part:
                case Content(text):
                    fields["content"] = fields.get("content", "") + text
                case Reasoning(text):
                    if self._format.shows_reasoning:
                        fields["reasoning"] = fields.get("reasoning", "") + text
                case Call(name):
                    self._is_dropped = self._num_calls > 0 and not self._format.is_parallel
                    if not self._is_dropped:
                        fields.setdefault("tool_calls", []).append(self._call_start(name))
                case CallArguments(text):
                    if not self._is_dropped:
                        self._append_arguments(fields.setdefault("tool_calls", []), text)
        return fields

    def _call_start(self, name: str) -> Json:
        call_format = self._format.call_format
        assert call_format is not None
        number, self._num_calls = self._num_calls, self._num_calls + 1
        random_part = "".join(secrets.choice(ID_CHARS) for _ in range(call_format.id_chars))
        return {
            "index": number,
            "id": call_format.id_prefix + random_part,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }

    def _append_arguments(self, calls: list[Json], text: str) -> None:
        """Appends arguments to the open call: to its entry in the same delta, or to a new entry."""
        if not calls:
            calls.append({"index": self._num_calls - 1, "function": {"arguments": ""}})
        calls[-1]["function"]["arguments"] += text
