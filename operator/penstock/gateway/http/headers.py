"""Headers that pass between clients and engines, and the path of a request to an engine."""

import re
import uuid
from collections.abc import Iterable, MutableMapping
from typing import Any

from multidict import CIMultiDict

from penstock.core.routing.forwarded_client import Network, forwarded_client
from penstock.core.tenants.credential_headers import CREDENTIAL_HEADERS
from penstock.gateway.snapshots.snapshot import Service
from penstock_engine.contract.wire import REQUEST_ID, REQUEST_ID_HEADER, TPOT_HEADER

Scope = MutableMapping[str, Any]
RawHeaders = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection", b"http2-settings", b"keep-alive", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
# A compressed response would hide where events end.
NOT_FOR_ENGINES = HOP_BY_HOP.union(
    CREDENTIAL_HEADERS, (b"accept-encoding", b"content-length", b"expect", b"host", b"x-request-id")
)
# Headers between the gateway and its engines; they are never forwarded.
INTERNAL_PREFIX = b"x-penstock-"
# Headers of responses that name the service, "namespace/name", and the revision of the engine that answered.
SERVICE_HEADER, REVISION_HEADER = b"x-penstock-service", b"x-penstock-revision"
# Headers that name the model that answered, and why it was a fallback.
MODEL_HEADER, FALLBACK_HEADER = b"x-penstock-model", b"x-penstock-fallback"
# Header that names the fields of the request which limits of a ModelRoute have set.
LIMITED_FIELDS_HEADER = b"x-penstock-limited-fields"
# An engine's redirect names an address that clients do not reach, and its cookies would be for all engines.
NOT_FOR_CLIENTS = HOP_BY_HOP | {
    b"content-length", b"date", b"location", b"server", b"set-cookie", b"x-request-id",
}  # fmt: skip
# Characters that a header's value must not have (RFC 9110, 5.5). HTTP libraries refuse to send some of them.
CONTROL_CHARACTER = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

# A preference `wait` of the header Prefer, in seconds.
WAIT_PREFERENCE = re.compile(
    rb"(?:^|[,;])\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?:[,;]|$)", re.IGNORECASE
)


def client_address(scope: Scope, trusted_proxies: tuple[Network, ...]) -> str:
    """The address of the client, or of the last proxy that is not trusted; empty if unknown."""
    host_port = scope.get("client")
    return forwarded_client(host_port[0] if host_port else "", scope["headers"], trusted_proxies)


def request_id_of(scope: Scope) -> str:
    """The client's request id if engines accept it, else a new one."""
    header = REQUEST_ID_HEADER.encode()
    value = next((value for name, value in scope["headers"] if name == header), b"")
    text: str = value.decode("latin-1")
    return text if REQUEST_ID.fullmatch(text) else uuid.uuid4().hex


def path_with_query(scope: Scope) -> str:
    """The path and the query of a request. scope: of ASGI."""
    path, query = scope["path"], scope.get("query_string", b"")
    return f"{path}?{query.decode('latin-1')}" if query else path


def headers_for_engine(
    scope: Scope, request_id: str, service: Service, identity_headers: frozenset[bytes]
) -> CIMultiDict[str]:
    """The client's headers, repeated ones included, and those that the gateway sets itself.

    identity_headers: those that may prove a tenant's identity, which are left out.
    """
    headers = CIMultiDict(
        (name.decode("latin-1"), header_text(value))
        for name, value in filter_headers(scope["headers"], NOT_FOR_ENGINES | identity_headers)
    )
    headers[REQUEST_ID_HEADER] = request_id
    headers["Content-Type"] = (
        "application/json"  # the body was read as JSON, whatever it was called
    )
    if service.objectives is not None and service.objectives.has_tpot:
        headers[TPOT_HEADER] = f"{service.objectives.tpot_s:g}"
    return headers


def headers_for_client(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """The headers of an engine's response, with a space for each control character in a value.

    Of several content types only the first one, by which the gateway has read the body.
    """
    passed: RawHeaders = []
    has_type = False
    for name, value in filter_headers(headers, NOT_FOR_CLIENTS):
        is_type = name == b"content-type"
        if not (is_type and has_type):
            passed.append((name, CONTROL_CHARACTER.sub(b" ", value).strip(b" \t")))
        has_type |= is_type
    return passed


def filter_headers(headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes]) -> RawHeaders:
    """Return the headers to pass on: not `dropped`, not internal, and not named by `Connection`."""
    kept = [(name.lower(), value) for name, value in headers]
    named = {
        token.strip().lower()
        for name, value in kept
        if name == b"connection"
        for token in value.split(b",")
    }
    return [
        (name, value)
        for name, value in kept
        if name not in dropped and name not in named and not name.startswith(INTERNAL_PREFIX)
    ]


def preferred_wait_s(prefer: bytes) -> float | None:
    """Seconds that a client is willing to wait, by its header Prefer (RFC 7240, 4.3); None: not said."""
    found = WAIT_PREFERENCE.search(prefer)
    return None if found is None else float(found[1])


def header_text(value: bytes) -> str:
    """Decode a header's value. aiohttp writes UTF-8, so a value that is UTF-8 is forwarded unchanged."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
