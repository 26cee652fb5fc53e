"""Validates the chat template's options, and its variables in requests and flags."""

import inspect
import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator
from transformers import PreTrainedTokenizerFast

from penstock_engine.core.errors import ModelError
from penstock_engine.options.serve_options import ServeOptions
from penstock_engine.text.template import TemplateOptions, read_template

MAX_VARIABLES = 64
MAX_VARIABLES_CHARS = 2**16  # of all names and values, as JSON

# Arguments of transformers' apply_chat_template, and the names it gives the messages in the template.
RESERVED = frozenset(inspect.signature(PreTrainedTokenizerFast.apply_chat_template).parameters) | {
    "conversations",
    "messages",
}

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def check_variables(variables: dict[str, Any]) -> dict[str, Any]:
    """Returns the template variables if their names and sizes are allowed. Raises ValueError."""
    if len(variables) > MAX_VARIABLES:
        raise ValueError(f"must not have more than {MAX_VARIABLES} names")
    if len(json.dumps(variables, ensure_ascii=False)) > MAX_VARIABLES_CHARS:
        raise ValueError(f"must not have more than {MAX_VARIABLES_CHARS} characters")
    if variables.get("chat_template") is not None:
        raise ValueError(UNTRUSTED_TEMPLATE)
    for name in variables:
        if name in RESERVED:
            raise ValueError(f"{name} is no variable of the chat template")
    return variables


TemplateVariables = Annotated[dict[str, Any], AfterValidator(check_variables)]

UNTRUSTED_TEMPLATE = (
    "a chat template of a request is not trusted: start the engine with --chat-template instead"
)


def template_options(options: ServeOptions) -> TemplateOptions:
    """The chat template's options from the flags. Raises ModelError."""
    text = None if options.chat_template is None else read_template(options.chat_template)
    try:
        variables = check_variables(options.default_chat_template_kwargs)
    except ValueError as error:
        raise ModelError(
            "BadTemplateVariables", f"--default-chat-template-kwargs {error}"
        ) from error
    return TemplateOptions(text, options.chat_template_content_format, variables)
