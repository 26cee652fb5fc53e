"""Grammars of tool calls, as each format writes them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from penstock_engine.parsers.tool_format import Tool, ToolFormat
from penstock_engine.structured.grammar import Grammar, GrammarRefused, Part, json_part, literal

# Text tokens by their text and special ones by their number: no text can be taken for the latter.
Specials = Mapping[str, int]


def of_calls(
    form: ToolFormat,
    tools: Sequence[Tool],
    specials: Specials,
    *,
    is_many: bool,
    otherwise: Grammar | Literal["text"] | None,
) -> Grammar:
    """One call, or several when is_many; `otherwise` says what the answer may be instead of calls.

    "text" may also come before calls, and then what opens a call decides that it is one. Raises
    GrammarRefused.
    """
    opening = spell(form.opening, specials)
    lead = form.first + form.call[0]
    if not form.bare:
        lead = lead.removeprefix(form.opening)
    rules = [
        f"first: {_alternatives(lead, form, tools, specials)}",
        f"next: {_alternatives(form.call[0], form, tools, specials)}",
    ]
    others = f"({spell(form.between, specials)} next)*" if is_many else ""
    calls = f"first {others} {spell(form.last, specials)}"
    parts = tuple(_parameters(index, tool) for index, tool in enumerate(tools))
    if otherwise is None:
        start = calls if form.bare else f"{opening} {calls}"
    elif isinstance(otherwise, Grammar):
        # With the opening where there is one: bare calls and a JSON answer could begin alike.
        start = f"({otherwise.start}) | {opening} {calls}"
        rules.append(otherwise.rules)
        parts += otherwise.parts
    elif form.bare:
        start = f"TEXT | {calls}"
        rules.append(rf"TEXT: /([^\s{re.escape(form.bare)}](?s:.)*)?/")
    else:
        start = f"TEXT | head {calls}"
        is_special = form.opening in specials
        rules += ["TEXT: /(?s:.*)/", f"head{'' if is_special else '[lazy]'}: TEXT {opening}"]
    return Grammar(start, "\n".join(rules), parts)


def spell(text: str, specials: Specials) -> str:
    """A text as Lark, with the special tokens in it by number."""
    found = sorted((token for token in specials if token in text), key=len, reverse=True)
    pieces = re.split("(" + "|".join(map(re.escape, found)) + ")", text) if found else [text]
    return " ".join(
        f"<[{specials[piece]}]>" if piece in specials else literal(piece)
        for piece in pieces
        if piece
    )


def _alternatives(before: str, form: ToolFormat, tools: Iterable[Tool], specials: Specials) -> str:
    after = spell(form.call[1], specials)
    return " | ".join(
        f"{spell(before % tool.name, specials)} @tool_{index} {after}"
        for index, tool in enumerate(tools)
    )


def _parameters(index: int, tool: Tool) -> Part:
    schema = {"type": "object", **tool.parameters}
    try:
        return json_part(f"tool_{index}", schema)
    except GrammarRefused as error:
        raise GrammarRefused(f"{tool.name}: {error}") from error
