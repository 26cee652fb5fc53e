"""The API routes that engines answer: one row for each, with all that the gateway knows of it.

Parsing, admission, usage, mirrored copies, metrics and the application's routes read these rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.routing.prompt_kinds import MESSAGES, TEXT, TOOLS, Prompt, PromptKind


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

    prompts: forms of the prompt, each as the fields that are its parts, with their kinds. A body has a form
    if it has the first of these fields; of several forms the first one counts. The first field also
    identifies the conversation. overhead_events: events of a stream that carry no token, such as DONE.
    last_event: a line that only the last event of a stream has, as a field and a regular expression for its
    value; a stream that ends without it was cut off.
    """

    path: str
    prompts: Sequence[Mapping[str, PromptKind]]
    usage: UsageFields
    overhead_events: int = 1
    last_event: tuple[str, str] = ("data", r"\[DONE\]")

    @property
    def generates(self) -> bool:
        """Whether its responses have generated tokens."""
        return self.usage.output is not None

    def prompt_of(self, fields: Mapping[str, Any]) -> Prompt:
        """Return the prompt of a parsed body; one without parts if it has none."""
        for kinds in self.prompts:
            if fields.get(next(iter(kinds))) is not None:
                return Prompt([(kind, fields.get(name)) for name, kind in kinds.items()])
        return Prompt(())


# Both routes read both prompts: it is the engine that refuses the one of the other route.
OPENAI_PROMPTS: Sequence[Mapping[str, PromptKind]] = (
    {"messages": MESSAGES, "tools": TOOLS},
    {"prompt": TEXT},
)
OPENAI_USAGE = UsageFields("prompt_tokens", "completion_tokens", "cached_tokens")

CHAT = Api(
    path="/v1/chat/completions",
    prompts=OPENAI_PROMPTS,
    usage=OPENAI_USAGE,
    overhead_events=2,  # the first event has only the role
)
COMPLETIONS = Api(path="/v1/completions", prompts=OPENAI_PROMPTS, usage=OPENAI_USAGE)
APIS = (CHAT, COMPLETIONS)
