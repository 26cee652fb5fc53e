"""The credentials that a client sends with a request."""

from collections.abc import Iterable

from penstock.core.tenants.credential_headers import API_KEY, AUTHORIZATION
from penstock.gateway.apis.errors import RequestError


def read_credential(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the bearer token or the key that a request has; None if it has none.

    Clients of OpenAI send `Authorization: Bearer`, those of Anthropic `x-api-key`. A request may have both,
    or one of them twice, only with one value. headers: with names in lower case.
    Raises RequestError.
    """
    found: str | None = None
    for name, value in headers:
        if name == AUTHORIZATION:
            credential = _bearer_token(value)
        elif name == API_KEY:
            credential = value.strip().decode("latin-1")
        else:
            continue
        if found is not None and credential != found:
            message = (
                "the headers authorization and x-api-key have different values: send one of them"
            )
            raise RequestError(400, message, reason="credentials_differ")
        found = credential
    return found


def _bearer_token(value: bytes) -> str:
    """The token of a header; empty if it has another scheme."""
    scheme, _, token = value.strip().partition(b" ")
    return token.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""
