"""The gateway's ASGI application: the OpenAI routes, health, metrics."""

import json
import time
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.gateway.fleet import Fleet
from penstock.gateway.relay import Relay
from penstock.gateway.telemetry import Telemetry

# What every engine answers. Relayed as raw ASGI: no framework work for each chunk.
RELAYED = frozenset({"/v1/chat/completions", "/v1/completions"})


@dataclass(slots=True)
class Gateway:
    """What the routes need. draining is set once, by SIGTERM."""

    fleet: Fleet
    relay: Relay
    telemetry: Telemetry
    draining: bool = False


def build_app(gateway: Gateway) -> ASGIApp:
    app = FastAPI(title="Penstock gateway", docs_url=None, redoc_url=None, openapi_url=None)
    started = int(time.time())

    @app.get("/healthz")
    async def healthz() -> Response:
        return PlainTextResponse("ok")

    @app.get("/readyz")
    async def readyz() -> Response:
        is_ready = gateway.fleet.is_synced and not gateway.draining
        return PlainTextResponse("ready" if is_ready else "not ready", 200 if is_ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(gateway.telemetry.exposition(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/models")
    async def models() -> Response:
        data: list[dict[str, Any]] = [
            {"id": name, "object": "model", "created": started, "owned_by": f"{key[0]}/{key[1]}"}
            for name, key in gateway.fleet.models()
        ]
        return Response(json.dumps({"object": "list", "data": data}), media_type="application/json")

    async def entry(scope: Scope, receive: Receive, send: Send) -> None:
        is_relayed = scope["type"] == "http" and scope["path"] in RELAYED
        if is_relayed and scope["method"] == "POST":
            await gateway.relay(scope, receive, send)
        else:
            await app(scope, receive, send)

    return entry
