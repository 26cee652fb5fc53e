"""Attributes of a request that the choice of an engine and session affinity use.

They are computed from the body when a request is parsed, as the body's fields are not kept.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from penstock.core.routing.prefix.prompt_prefix import NO_PREFIX, PromptPrefix
from penstock.core.routing.prompt_kinds import Prompt


class RequestAttributes(NamedTuple):
    """Attributes of a request, independent of the service's settings.

    user_key, conversation_key: digests that are alike in the requests of one user, or of one conversation, at
    every gateway; None: the request does not say. prefix: beginnings of its prompt.
    """

    user_key: bytes | None
    conversation_key: bytes | None
    prefix: PromptPrefix = NO_PREFIX

    @classmethod
    def of(
        cls, fields: Mapping[str, Any], prompt: Prompt, prefix: PromptPrefix = NO_PREFIX
    ) -> "RequestAttributes":
        """Attributes of a request. fields: of the parsed body. prompt: among these fields."""
        user = fields.get("user")
        # JSON may escape half a character
        user_text = user.encode(errors="surrogatepass") if isinstance(user, str) else b""
        beginning = prompt.beginning
        opening = json.dumps(beginning).encode() if beginning else b""
        return cls(user_key=_digest(user_text), conversation_key=_digest(opening), prefix=prefix)


def _digest(text: bytes) -> bytes | None:
    """Hash of a text, or None for an empty one. It has 16 bytes, as requests hold it until they end."""
    return blake2b(text, digest_size=16).digest() if text else None
