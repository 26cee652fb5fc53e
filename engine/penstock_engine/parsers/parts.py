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
    """A tool call, by its name. Its arguments follow as `CallArguments`, until another call begins."""

    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Text that continues the arguments of a tool call: a JSON object, unless it was cut off."""

    text: str


Part = Content | Reasoning | Call | CallArguments
