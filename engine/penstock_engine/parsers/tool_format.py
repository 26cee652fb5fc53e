"""Tool call syntax of each model family, shared by the parser and the grammar."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from penstock_engine.parsers.json_scan import read_json, write_json

ARGUMENT_KEYS = ("arguments", "parameters")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call. parameters: the JSON schema of its arguments."""

    name: str
    parameters: dict[str, Any]
    is_strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """Tool call syntax of one model family.

    The parser reads a repetition of: opening, header, JSON (one call or a list of calls), separators.

    opening     tag before a call; may be a special token
    bare        first character of an answer that consists of calls without the tag
    has_header  whether the tool's name may precede its arguments, outside the JSON
    after       separators that may follow a call, besides white space

    The grammar writes: first, then calls separated by `between`, then last.

    call        text before and after the arguments of one call; %s is the tool's name
    id_prefix, id_chars   prefix of call ids, and number of random characters after it
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
    id_chars=9,  # Mistral's templates reject other lengths
)
# Token that exists since version 11 of Mistral's tokenizer.
MISTRAL_11_ARGS_TAG = "[ARGS]"
MISTRAL_11 = ToolFormat(
    opening="[TOOL_CALLS]",
    has_header=True,
    call=("[TOOL_CALLS]%s[ARGS]", ""),
    between="",
    id_prefix="",
    id_chars=9,
)
# Format that the grammar enforces when no --tool-call-parser names the model's own.
PLAIN_LIST = ToolFormat(
    bare="[",
    first="[",
    call=('{"name": "%s", "parameters": ', "}"),
    between=", ",
    last="]",
)


def read_call(source: str, names: Collection[str]) -> tuple[str, str]:
    """Parses the JSON text of one call. Returns its name, and its arguments as the text of a JSON object.

    names: the tools that may be called. Raises ValueError if the text is anything else than a call of one
    of these tools, RecursionError if it is nested too deeply.
    """
    entry = read_json(source)
    if not isinstance(entry, dict):
        raise ValueError("a call is not an object")
    name = entry.get("name")
    if not isinstance(name, str) or name not in names:
        raise ValueError("no such tool")
    arguments = next((entry[key] for key in ARGUMENT_KEYS if key in entry), None)
    # Some models write the arguments as a string that holds JSON.
    if isinstance(arguments, str):
        arguments = read_json(arguments or "{}")
    if arguments is not None and not isinstance(arguments, dict):
        raise ValueError("the arguments are not an object")
    return name, write_json(arguments or {})


def name_before_arguments(head: str, names: Collection[str]) -> str | None:
    """Returns the name in a call's JSON text that ends where its arguments begin.

    None if no name precedes the arguments, or the name is not one of `names`.
    """
    try:
        entry = read_json(head + "{}}")
    except (ValueError, RecursionError):
        return None
    name = entry.get("name")
    is_begun = list(entry)[-1] in ARGUMENT_KEYS and isinstance(name, str) and name in names
    return name if is_begun else None
