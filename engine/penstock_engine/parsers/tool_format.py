"""How families of models write tool calls: data that the parser reads by and the grammar writes by."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from penstock_engine.parsers.json_scan import read_json, write_json
from penstock_engine.parsers.parts import Call


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call. parameters: the JSON schema of its arguments."""

    name: str
    parameters: dict[str, Any]
    is_strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """Reading: opening, header, JSON, what is in `after`; again. The JSON is one call or a list.

    opening     the tag before a call; may be a special token
    bare        the character with which a whole answer can begin to be calls, without the tag
    has_header  the name of the tool may stand before its arguments, outside of the JSON
    after       what may follow a call, beside white space

    Writing: first, then calls with `between` between them, then last.

    call        of one call, what stands before and after its arguments; %s is the name
    id_prefix, id_chars   of the ids of calls: how they begin, and what length follows
    """

    opening: str = ""
    bare: str = ""
    has_header: bool = False
    after: tuple[str, ...] = ()
    first: str = ""
    call: tuple[str, str]
    between: str
    last: str = ""
    id_prefix: str = "call_"
    id_chars: int = 24


HERMES = ToolFormat(
    opening="<tool_call>",
    after=("</tool_call>",),
    call=('<tool_call>\n{"name": "%s", "arguments": ', "}\n</tool_call>"),
    between="\n",
)
LLAMA3_JSON = ToolFormat(
    opening="<|python_tag|>",
    bare="{",
    after=(";",),
    call=('{"name": "%s", "parameters": ', "}"),
    between="; ",
)
MISTRAL = ToolFormat(
    opening="[TOOL_CALLS]",
    has_header=True,
    first="[TOOL_CALLS][",
    call=('{"name": "%s", "arguments": ', "}"),
    between=", ",
    last="]",
    id_prefix="",
    id_chars=9,  # Mistral's templates refuse others
)
# Since version 11 of Mistral's tokenizer, told by this token.
MISTRAL_11_MARK = "[ARGS]"
MISTRAL_11 = ToolFormat(
    opening="[TOOL_CALLS]",
    has_header=True,
    call=("[TOOL_CALLS]%s[ARGS]", ""),
    between="",
    id_prefix="",
    id_chars=9,
)
# What a model is made to write when nobody has said what it has learnt.
PLAIN_LIST = ToolFormat(
    bare="[",
    first="[",
    call=('{"name": "%s", "parameters": ', "}"),
    between=", ",
    last="]",
)


def read_calls(header: str, source: str, names: Collection[str]) -> list[Call]:
    """The calls of one JSON text. Raises ValueError when it is anything else than calls of `names`."""
    value = read_json(source)
    if header:
        value = {"name": header.partition("[")[0].strip(), "arguments": value}
    entries = value if isinstance(value, list) else [value]
    if not entries:
        raise ValueError("no call")
    return [_read_call(entry, names) for entry in entries]


def _read_call(entry: Any, names: Collection[str]) -> Call:
    if not isinstance(entry, dict):
        raise ValueError("a call is not an object")
    name = entry.get("name")
    arguments = entry.get("arguments", entry.get("parameters"))
    if not isinstance(name, str) or name not in names:
        raise ValueError("no such tool")
    if arguments is not None and not isinstance(arguments, dict):
        raise ValueError("the arguments are not an object")
    return Call(name, write_json(arguments or {}))
