"""Session-affinity keys: requests with the same key stay on one revision while weights are unchanged."""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal, get_args

from penstock.core.routing.apis import Api, PromptKind

Affinity = Literal["None", "Conversation", "User"]
AFFINITIES: tuple[Affinity, ...] = get_args(Affinity)

# Characters of a prompt or a message that enter the key; enough to distinguish conversations.
TEXT_CHARACTERS = 256


def affinity_of(wanted: str) -> Affinity:
    """Read a type of session affinity; one of a newer API counts as "None"."""
    return next((each for each in AFFINITIES if each == wanted), "None")


def affinity_key(by: Affinity, fields: Mapping[str, Any], api: Api) -> bytes | None:
    """Affinity key of a request; None without affinity, or if the request has no usable fields.

    fields: of the parsed body. Conversation: the messages up to the first user message, which every later
    turn repeats. User: the field `user`. A text has no turns, so its beginning is its key.
    """
    match by:
        case "None":
            return None
        case "User":
            user = fields.get("user")
            if not isinstance(user, str) or not user:
                return None
            return _digest(user.encode(errors="surrogatepass"))  # JSON may escape half a character
        case "Conversation":
            beginning = _beginning(*api.prompt_of(fields))
            return _digest(json.dumps(beginning).encode()) if beginning else None


def _digest(text: bytes) -> bytes:
    """Hash of the text, 16 bytes: it is held in memory until the request ends."""
    return blake2b(text, digest_size=16).digest()


def _beginning(kind: PromptKind, prompt: Any) -> Any:
    match kind:
        case "Text":
            return prompt[:TEXT_CHARACTERS] if isinstance(prompt, str | list) else None
        case "Messages":
            return _opening(prompt) if isinstance(prompt, list) else None


def _opening(messages: list[Any]) -> list[str] | None:
    """Texts of the messages up to the first one of the user."""
    opening = []
    for message in messages:
        if not isinstance(message, dict):
            return None
        opening.append(_text(message.get("content")))
        if message.get("role") == "user":
            break
    return opening


def _text(content: Any) -> str:
    if isinstance(content, list):  # images and other large parts are skipped
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = " ".join(text for text in texts if isinstance(text, str))
    return content[:TEXT_CHARACTERS] if isinstance(content, str) else ""
