"""Options of the chat template, and whether a template reads message content as a list of parts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, TemplateError, TemplateSyntaxError, nodes

from penstock_engine.core.errors import ModelError
from penstock_engine.serve_options import ContentFormat

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
    """The text of --chat-template, which is a template or the path of a file. Raises ModelError."""
    text = given
    if "{" not in given:  # a path; a template contains braces
        try:
            text = Path(given).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            message = f"--chat-template: the file {Path(given).name} cannot be read"
            raise ModelError("NoChatTemplate", message) from error
    try:
        _parse(text)
    except TemplateSyntaxError as error:
        if UNKNOWN_TAG not in str(error):
            message = f"--chat-template: line {error.lineno}: {error.message}"
            raise ModelError("BadChatTemplate", message) from error
    return text


def _parse(template: str) -> nodes.Template:
    return Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True).parse(template)


def loops_over_content(template: str) -> bool:
    """Whether a template has a loop over the content of a message."""
    try:
        tree = _parse(template)
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
