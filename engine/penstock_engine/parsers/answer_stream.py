"""The text of an answer, taken apart in the order in which it was put together."""

from penstock_engine.parsers.parts import Content, Part
from penstock_engine.parsers.think_stream import ThinkStream
from penstock_engine.parsers.tool_stream import ToolStream


class AnswerStream:
    """Reasoning first, then calls among what is left. Either may be None: then it is not looked for."""

    def __init__(self, think: ThinkStream | None, tools: ToolStream | None) -> None:
        self._think = think
        self._tools = tools

    def push(self, text: str) -> list[Part]:
        """What this piece makes certain."""
        if not text:
            return []
        return self._calls(self._think.push(text) if self._think else [Content(text)])

    def finish(self) -> list[Part]:
        """What was held back, when no more text comes."""
        parts = self._calls(self._think.finish()) if self._think else []
        return parts + (self._tools.finish() if self._tools else [])

    def _calls(self, parts: list[Part]) -> list[Part]:
        if self._tools is None:
            return parts
        found: list[Part] = []
        for part in parts:
            found += self._tools.push(part.text) if isinstance(part, Content) else [part]
        return found
