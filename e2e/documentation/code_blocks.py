"""Reads the fenced code blocks of a Markdown page.

Each fence names its language. An HTML comment directly above a block, `<!-- not run: REASON -->`,
excludes the block from being run. A page that leaves unclear what a block is, is refused.
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

RUN = ("bash", "python", "yaml")
SHOWN = ("json", "mermaid", "text")
FENCE = re.compile(r"(?P<indent> *)```(?P<language>.*)")
MARKER = re.compile(r"<!-- *not run:?(?P<reason>.*?)-->")
LIST_ITEM = re.compile(r" *([-*+]|\d+\.) ")


class UnclearPage(Exception):
    """A page that cannot be read as blocks; the text says where and what to change."""


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A block of a page.

    line: of its opening fence, from 1. not_run: the reason of its marker, or None without a marker.
    follows_directly: whether there are only blank lines between the block before and this one.
    """

    line: int
    language: str
    text: str
    not_run: str | None
    follows_directly: bool

    @property
    def is_run(self) -> bool:
        return self.language in RUN and self.not_run is None


def read_blocks(text: str) -> list[CodeBlock]:
    """All code blocks of a page, in order. Raises UnclearPage."""
    return list(_blocks(text.splitlines()))


def _blocks(lines: list[str]) -> Iterator[CodeBlock]:
    reason: str | None = None
    is_directly_after, is_in_list = False, False
    number = 0
    while number < len(lines):
        line = lines[number]
        fence, marker = FENCE.fullmatch(line), MARKER.fullmatch(line.strip())
        if fence:
            end = _end(lines, number)
            yield CodeBlock(
                number + 1,
                _language(fence["language"].strip(), number + 1),
                textwrap.dedent("\n".join(lines[number + 1 : end])) + "\n",
                reason,
                is_directly_after,
            )
            number, reason, is_directly_after = end + 1, None, True
            continue
        if reason is not None:
            raise UnclearPage(f"line {number}: the marker is not directly above a code block")
        if marker:
            reason = _reason(marker["reason"], number + 1)
        _refuse_indented(lines, number, is_in_list)
        if line.strip():
            is_directly_after = False
            is_in_list = bool(LIST_ITEM.match(line)) or (is_in_list and line.startswith(" "))
        number += 1
    if reason is not None:
        raise UnclearPage(f"line {number}: the marker is not directly above a code block")


def _end(lines: list[str], start: int) -> int:
    """The index of the closing fence of the block that begins at `start`."""
    for number in range(start + 1, len(lines)):
        if lines[number].strip() == "```":
            return number
    raise UnclearPage(f"line {start + 1}: the code block is not closed")


def _language(word: str, line: int) -> str:
    if word in RUN + SHOWN:
        return word
    known = ", ".join(sorted(RUN + SHOWN))
    raise UnclearPage(f"line {line}: the fence has to name its language, one of {known}")


def _reason(text: str, line: int) -> str:
    if text.strip():
        return text.strip()
    raise UnclearPage(f"line {line}: the marker gives no reason, as in <!-- not run: REASON -->")


def _refuse_indented(lines: list[str], number: int, is_in_list: bool) -> None:
    """A code block without a fence would go unseen."""
    indent = 6 if is_in_list else 4
    is_new = number == 0 or not lines[number - 1].strip()
    if is_new and lines[number].startswith(" " * indent) and lines[number].strip():
        raise UnclearPage(f"line {number + 1}: an indented code block; put it between fences")
