"""Builds the grammar of tool calls in a model family's format."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from penstock_engine.parsers.tool_format import Tool, ToolFormat
from penstock_engine.structured.grammar import (
    Grammar,
    GrammarError,
    Subgrammar,
    json_subgrammar,
    lark_string,
)

# Text and id of each special token. Grammars name them by id, so that no ordinary text matches them.
SpecialTokens = Mapping[str, int]


def tool_call_grammar(
    form: ToolFormat,
    tools: Sequence[Tool],
    specials: SpecialTokens,
    *,
    is_many: bool,
    alternative: Grammar | Literal["text"] | None,
) -> Grammar:
    """Returns the grammar of an answer with one call, or with several if is_many.

    alternative: grammar of an answer without calls; "text": free text, which may also precede calls
    (the opening tag then begins a call); None: the answer must have calls. Raises GrammarError.
    """
    opening = to_lark(form.opening, specials)
    lead = form.first + form.call[0]
    if not form.bare:
        lead = lead.removeprefix(form.opening)
    rules = [
        f"first: {_alternatives(lead, form, tools, specials)}",
        f"next: {_alternatives(form.call[0], form, tools, specials)}",
    ]
    others = f"({to_lark(form.between, specials)} next)*" if is_many else ""
    calls = f"first {others} {to_lark(form.last, specials)}"
    parts = tuple(_parameter_grammar(index, tool) for index, tool in enumerate(tools))
    if alternative is None:
        start = calls if form.bare else f"{opening} {calls}"
    elif isinstance(alternative, Grammar):
        # Calls need their opening tag here: a call without one and a JSON answer could begin alike.
        start = f"({alternative.start}) | {opening} {calls}"
        rules.append(alternative.rules)
        parts += alternative.parts
    elif form.bare:
        start = f"TEXT | {calls}"
        rules.append(rf"TEXT: /([^\s{re.escape(form.bare)}](?s:.)*)?/")
    else:
        start = f"TEXT | head {calls}"
        is_special = form.opening in specials
        rules += ["TEXT: /(?s:.*)/", f"head{'' if is_special else '[lazy]'}: TEXT {opening}"]
    return Grammar(start, "\n".join(rules), parts)


def to_lark(text: str, specials: SpecialTokens) -> str:
    """Returns a text as Lark, with its special tokens by id."""
    found = sorted((token for token in specials if token in text), key=len, reverse=True)
    pieces = re.split("(" + "|".join(map(re.escape, found)) + ")", text) if found else [text]
    return " ".join(
        f"<[{specials[piece]}]>" if piece in specials else lark_string(piece)
        for piece in pieces
        if piece
    )


def _alternatives(
    before: str, form: ToolFormat, tools: Iterable[Tool], specials: SpecialTokens
) -> str:
    after = to_lark(form.call[1], specials)
    return " | ".join(
        f"{to_lark(before % tool.name, specials)} @tool_{index} {after}"
        for index, tool in enumerate(tools)
    )


def _parameter_grammar(index: int, tool: Tool) -> Subgrammar:
    schema = {"type": "object", **tool.parameters}
    try:
        return json_subgrammar(f"tool_{index}", schema)
    except GrammarError as error:
        raise GrammarError(f"{tool.name}: {error}") from error
