"""One choice of a chat, as the fields of OpenAI's messages."""

import secrets
import string
from typing import Any

from penstock_engine.parsers.parts import Call, Content, Part, Reasoning
from penstock_engine.server.answer_form import AnswerForm
from penstock_engine.server.generation import Piece

ID_CHARS = string.ascii_letters + string.digits

Json = dict[str, Any]


class ChatView:
    """Fed with the pieces of one choice in order: all of them, or one that has all."""

    def __init__(self, form: AnswerForm) -> None:
        self._form = form
        self._stream = form.stream()
        self._num_calls = 0

    def delta(self, piece: Piece) -> Json:
        """What this piece adds to the message; empty when nothing is certain yet."""
        parts = self._stream.push(piece.text)
        if piece.finish_reason is not None:
            parts += self._stream.finish()
        return self._fields(parts)

    def message(self, whole: Piece) -> Json:
        fields = self.delta(whole)
        for call in fields.get("tool_calls", ()):
            del call["index"]
        content = self._form.echoed + fields.get("content", "")
        is_all = not self._num_calls and "reasoning" not in fields
        message = {"role": self._form.role, "content": content if content or is_all else None}
        return {"reasoning": None} | fields | message

    def finish_reason(self, piece: Piece) -> str | None:
        """As OpenAI has it: a call that was asked for by name ends like any text."""
        if piece.finish_reason == "stop" and self._num_calls and not self._form.is_named:
            return "tool_calls"
        return piece.finish_reason

    def _fields(self, parts: list[Part]) -> Json:
        fields: Json = {}
        for part in parts:
            match part:
                case Content(text):
                    fields["content"] = fields.get("content", "") + text
                case Reasoning(text):
                    if self._form.shows_reasoning:
                        fields["reasoning"] = fields.get("reasoning", "") + text
                case Call():
                    if self._form.is_parallel or not self._num_calls:
                        fields.setdefault("tool_calls", []).append(self._call(part))
        return fields

    def _call(self, call: Call) -> Json:
        form = self._form.call_format
        assert form is not None
        number, self._num_calls = self._num_calls, self._num_calls + 1
        return {
            "index": number,
            "id": form.id_prefix + "".join(secrets.choice(ID_CHARS) for _ in range(form.id_chars)),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
