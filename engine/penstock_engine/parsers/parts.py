"""The parts of an answer: content, reasoning and tool calls."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """Text of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A complete tool call. arguments: a JSON object, as text."""

    name: str
    arguments: str


Part = Content | Reasoning | Call
