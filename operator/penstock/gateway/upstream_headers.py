"""Builds the path and the headers of a request to an engine."""

from collections.abc import MutableMapping
from typing import Any

from multidict import CIMultiDict

from penstock.gateway.snapshot import Service
from penstock.gateway.upstream import NOT_FOR_ENGINES, filter_headers, header_text
from penstock_engine.wire import REQUEST_ID_HEADER, TPOT_HEADER

Scope = MutableMapping[str, Any]


def path_with_query(scope: Scope) -> str:
    """The path and the query of a request. scope: of ASGI."""
    path, query = scope["path"], scope.get("query_string", b"")
    return f"{path}?{query.decode('latin-1')}" if query else path


def headers_for_engine(scope: Scope, request_id: str, service: Service) -> CIMultiDict[str]:
    """The client's headers, repeated ones included, and those that the gateway sets itself."""
    headers = CIMultiDict(
        (name.decode("latin-1"), header_text(value))
        for name, value in filter_headers(scope["headers"], NOT_FOR_ENGINES)
    )
    headers[REQUEST_ID_HEADER] = request_id
    headers["Content-Type"] = (
        "application/json"  # the body was read as JSON, whatever it was called
    )
    if service.objectives is not None and service.objectives.has_tpot:
        headers[TPOT_HEADER] = f"{service.objectives.tpot_s:g}"
    return headers
