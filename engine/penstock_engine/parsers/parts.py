"""What the text of an answer is made of."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model wrote to itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A whole call of a tool. arguments: a JSON object, as text."""

    name: str
    arguments: str


Part = Content | Reasoning | Call
