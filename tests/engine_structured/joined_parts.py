"""Joins the parts of an answer that a parser returns piece by piece."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock_engine.parsers.parts import Call, CallArguments, Content, Part, Reasoning


@dataclass(frozen=True)
class JoinedCall:
    """A call with all of its arguments."""

    name: str
    arguments: str


Joined = Content | Reasoning | JoinedCall


def join(parts: Iterable[Part]) -> list[Joined]:
    """Joins adjacent parts of one kind, and calls with their arguments."""
    joined: list[Joined] = []
    for part in parts:
        last = joined[-1] if joined else None
        match part:
            case Call(name):
                joined.append(JoinedCall(name, ""))
            case CallArguments(text):
                assert isinstance(last, JoinedCall)
                joined[-1] = JoinedCall(last.name, last.arguments + text)
            case Content(text) | Reasoning(text) if isinstance(last, type(part)):
                joined[-1] = type(part)(last.text + text)
            case Content() | Reasoning():
                joined.append(part)
    return joined
