"""Validates the chat template variables of requests and of --default-chat-template-kwargs."""

import inspect
import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator
from transformers import PreTrainedTokenizerFast

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
