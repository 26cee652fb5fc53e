"""The API routes that engines answer: one row for each, with all that the gateway knows of it.

Parsing, admission, usage, mirrored copies, metrics and the application's routes read these rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# Text: a text, texts, or token ids. Messages: those of a chat, with `tools` beside them.
PromptKind = Literal["Text", "Messages"]


@dataclass(frozen=True, slots=True)
class UsageFields:
    """Names of the token counts in the `usage` of a response.

    output: None if the API generates no tokens. cached: part of the prompt's that came from a cache; None if
    the API does not report it.
    """

    prompt: str
    output: str | None
    cached: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # hashable: one object for each API
class Api:
    """An API route that engines answer.

    prompt: fields of a body that may have the prompt, and their kinds; the first one that a body has counts.
    overhead_events: events of a stream that carry no token, such as DONE. last_event: a line that only the
    last event of a stream has, as a field and a regular expression for its value; a stream that ends without
    it was cut off.
    """

    path: str
    prompt: Mapping[str, PromptKind]
    usage: UsageFields
    overhead_events: int = 1
    last_event: tuple[str, str] = ("data", r"\[DONE\]")

    @property
    def generates(self) -> bool:
        """Whether its responses have generated tokens."""
        return self.usage.output is not None

    def prompt_of(self, fields: Mapping[str, Any]) -> tuple[PromptKind, Any]:
        """Return the prompt of a parsed body with its kind; a text that is None if there is none."""
        for name, kind in self.prompt.items():
            if fields.get(name) is not None:
                return kind, fields[name]
        return "Text", None


# Both routes read both fields: it is the engine that refuses the field of the other route.
OPENAI_PROMPT: Mapping[str, PromptKind] = {"messages": "Messages", "prompt": "Text"}
OPENAI_USAGE = UsageFields("prompt_tokens", "completion_tokens", "cached_tokens")

CHAT = Api(
    path="/v1/chat/completions",
    prompt=OPENAI_PROMPT,
    usage=OPENAI_USAGE,
    overhead_events=2,  # the first event has only the role
)
COMPLETIONS = Api(path="/v1/completions", prompt=OPENAI_PROMPT, usage=OPENAI_USAGE)
APIS = (CHAT, COMPLETIONS)
