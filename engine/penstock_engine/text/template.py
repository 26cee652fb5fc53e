"""Options of the chat template, and whether a template reads message content as a list of parts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, TemplateError, TemplateSyntaxError, nodes

from penstock_engine.checkpoints.gguf.file import find_gguf, read_gguf
from penstock_engine.checkpoints.gguf.vocabulary import chat_template_of
from penstock_engine.core.errors import ModelError
from penstock_engine.options.serve_options import ContentFormat
from penstock_engine.text.tokenizer_files import SETTINGS_NAME, read_settings

# Files of a model with chat templates. transformers reads the one in the settings only if neither exists.
FILE_NAME, FOLDER_NAME = "chat_template.jinja", "additional_chat_templates"

# Largest template that is compiled, in characters. A hostile one needs 2.9 KB of memory for each of them, and
# the container of a preflight has 1 GiB. Those of real models have at most some 50,000.
MAX_TEMPLATE_CHARS = 128 << 10

# Message of jinja2 about a tag that only transformers knows, such as {% generation %}.
UNKNOWN_TAG = "unknown tag"


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """The chat template's options from the command line.

    text: a template instead of the model's own. variables: for requests that do not set them.
    content_format: string passes the content of messages as one text, openai as a list of parts, auto
    as a list if the template has a loop over it.
    """

    text: str | None = None
    content_format: ContentFormat = "auto"
    variables: Mapping[str, Any] = field(default_factory=dict)


def read_template(given: str) -> str:
    """The text of --chat-template, which is a template or the path of a file.

    Raises ModelError, and PermissionError if the file may not be read.
    """
    text = given
    if "{" not in given:  # a path; a template contains braces
        try:
            with Path(given).open(encoding="utf-8") as file:
                text = file.read(MAX_TEMPLATE_CHARS + 1)
        except PermissionError:
            raise
        except (OSError, ValueError) as error:
            message = f"--chat-template: the file {Path(given).name} cannot be read"
            raise ModelError("NoChatTemplate", message) from error
    check_template(text, "--chat-template")
    return text


def check_template(text: str, name: str) -> None:
    """Raise ModelError if a template cannot be compiled. name: of the template, for the message."""
    if len(text) > MAX_TEMPLATE_CHARS:
        raise ModelError(
            "BadChatTemplate",
            f"{name} has more than {MAX_TEMPLATE_CHARS >> 10} KiB, so it is no chat template",
        )
    try:
        _environment().compile(text)
    except RecursionError as error:
        raise ModelError("BadChatTemplate", f"{name} is nested too deeply") from error
    except SyntaxError as error:  # such as break outside of a loop, which jinja2 does not find
        raise ModelError("BadChatTemplate", f"{name}: {error.msg}") from error
    except TemplateSyntaxError as error:
        if UNKNOWN_TAG not in str(error):
            message = f"{name}: line {error.lineno}: {error.message}"
            raise ModelError("BadChatTemplate", message) from error


def check_own_templates(place: Path) -> None:
    """Raise ModelError if a model's chat template cannot be read or compiled. place: folder or GGUF file."""
    for name, text in _own_templates(place):
        check_template(text, name)


def _own_templates(place: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of the templates that transformers reads for a tokenizer."""
    if (gguf := find_gguf(place)) is not None:
        yield "tokenizer.chat_template", chat_template_of(read_gguf(gguf)) or ""
        return
    files = [place / FILE_NAME, *sorted((place / FOLDER_NAME).glob("*.jinja"))]
    for path in filter(Path.is_file, files):
        with path.open(encoding="utf-8", errors="replace") as file:
            yield path.name, file.read(MAX_TEMPLATE_CHARS + 1)
    if any(map(Path.is_file, files)):
        return
    given = read_settings(place / SETTINGS_NAME).get("chat_template")
    named = given if isinstance(given, list) else [{"template": given}]
    for entry in named:
        if isinstance(entry, dict) and isinstance(text := entry.get("template"), str):
            yield f"chat_template of {SETTINGS_NAME}", text


def _environment() -> Environment:
    return Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True)


def loops_over_content(template: str) -> bool:
    """Whether a template has a loop over the content of a message."""
    try:
        tree = _environment().parse(template)
    except TemplateError:
        return False  # rendering reports the error
    named = {
        assigned.target.name
        for assigned in tree.find_all(nodes.Assign)
        if isinstance(assigned.target, nodes.Name) and _is_content(assigned.node)
    }
    return any(
        _is_content(loop.iter) or (isinstance(loop.iter, nodes.Name) and loop.iter.name in named)
        for loop in tree.find_all(nodes.For)
    )


def _is_content(node: nodes.Node) -> bool:
    """Whether a node is `message.content` or `message["content"]`."""
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    return (
        isinstance(node, nodes.Getitem)
        and isinstance(node.arg, nodes.Const)
        and node.arg.value == "content"
    )
