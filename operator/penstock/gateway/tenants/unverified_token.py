"""Reads a JSON Web Token without a check of its signature, to find out who could verify it."""

import binascii
import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Longest token that is read, in bytes. Those with many groups have 2 to 4 KiB, and a head of a request 32.
MAX_TOKEN_BYTES = 8 << 10


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """Claims and header of a token that is not verified yet. Fields that are absent or no strings are empty.

    key_id, issuer, subject: its `kid`, `iss` and `sub`. audiences: its `aud`. text: the whole token.
    """

    text: str
    key_id: str
    issuer: str
    subject: str
    audiences: tuple[str, ...]


def read_token(token: bytes) -> UnverifiedToken | None:
    """Read a token of at most MAX_TOKEN_BYTES. None: it is no JSON Web Token."""
    if len(token) > MAX_TOKEN_BYTES or token.count(b".") != 2:
        return None
    head, payload, _ = token.split(b".")
    header, claims = _json_object(head), _json_object(payload)
    if header is None or claims is None:
        return None
    return UnverifiedToken(
        text=token.decode("latin-1"),
        key_id=_string(header, "kid"),
        issuer=_string(claims, "iss"),
        subject=_string(claims, "sub"),
        audiences=audiences_of(claims),
    )


def audiences_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """The claim `aud`: a string or a list of strings. Empty if it is something else."""
    return strings(claims.get("aud"))


def strings(value: object) -> tuple[str, ...]:
    """The strings in a claim that is a string or a list. Other values are left out."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list):
        return tuple(each for each in value if isinstance(each, str))
    return ()


def _json_object(part: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):  # RecursionError: thousands of brackets
        return None
    return content if isinstance(content, dict) else None


def _string(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
