"""Parses an answer: reasoning first, then tool calls in the rest."""

from penstock_engine.parsers.parts import Content, Part
from penstock_engine.parsers.reasoning_parser import ReasoningParser
from penstock_engine.parsers.tool_call_parser import ToolCallParser


class AnswerParser:
    """Splits generated text into reasoning, content and tool calls, chunk by chunk.

    reasoning: parser of the reasoning; None if the text has none. tools: parser of tool calls; None if
    calls are not parsed.
    """

    def __init__(self, reasoning: ReasoningParser | None, tools: ToolCallParser | None) -> None:
        self._reasoning = reasoning
        self._tools = tools

    @property
    def has_failed_call(self) -> bool:
        """Whether text so far began like a tool call and was none, or was cut off or is not JSON."""
        return self._tools is not None and self._tools.has_failed

    def push(self, text: str) -> list[Part]:
        """Returns the parts that this chunk completes."""
        if not text:
            return []
        return self._parse_calls(self._reasoning.push(text) if self._reasoning else [Content(text)])

    def finish(self) -> list[Part]:
        """Returns the text held back so far. Call it once, after the last chunk."""
        parts = self._parse_calls(self._reasoning.finish()) if self._reasoning else []
        return parts + (self._tools.finish() if self._tools else [])

    def _parse_calls(self, parts: list[Part]) -> list[Part]:
        if self._tools is None:
            return parts
        found: list[Part] = []
        for part in parts:
            found += self._tools.push(part.text) if isinstance(part, Content) else [part]
        return found
