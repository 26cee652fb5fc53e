"""Joins the parts of an answer that a parser returns piece by piece."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock_engine.parsers.parts import CallArguments, CallStart, Content, Part, Reasoning


@dataclass(frozen=True)
class Call:
    """A call with all of its arguments."""

    name: str
    arguments: str


Joined = Content | Reasoning | Call


def join(parts: Iterable[Part]) -> list[Joined]:
    """Joins adjacent parts of one kind, and calls with their arguments."""
    joined: list[Joined] = []
    for part in parts:
        last = joined[-1] if joined else None
        match part:
            case CallStart(name):
                joined.append(Call(name, ""))
            case CallArguments(text):
                assert isinstance(last, Call)
                joined[-1] = Call(last.name, last.arguments + text)
            case Content(text) | Reasoning(text) if isinstance(last, type(part)):
                joined[-1] = type(part)(last.text + text)
            case Content() | Reasoning():
                joined.append(part)
    return joined
