"""Options of the chat template, and whether a template reads message content as a list of parts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment, TemplateError, nodes

from penstock_engine.serve_options import ContentFormat


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


def loops_over_content(template: str) -> bool:
    """Whether a template has a loop over the content of a message."""
    try:
        tree = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True).parse(template)
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
