"""A server with the adapter routes of Penstock's engine and of vLLM, and without a model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from tests.support.http_server import served


@dataclass
class AdapterEngine:
    """An engine whose answers tests choose.

    entries: of /v1/adapters, by name. refused: status and body of the error for the load of a name. load_s,
    list_s: time of a load and of a list. calls: loads and unloads in the order of their arrival. list_body:
    replaces the lists, with list_status. lists: released once for each list that is asked for.
    """

    address: str = ""
    entries: dict[str, dict[str, object]] = field(default_factory=dict)
    refused: dict[str, tuple[int, object]] = field(default_factory=dict)
    load_s: float = 0.0
    list_s: float = 0.0
    calls: list[tuple[str, str]] = field(default_factory=list)
    list_body: bytes | None = None
    list_status: int = 200
    lists: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def add(self, name: str, tier: str = "host", **more: object) -> None:
        """Put an adapter into the engine's list."""
        entry = {"id": name, "tier": tier, "rank": 8, "bytes": 4096, "requests": 0}
        self.entries[name] = entry | more

    async def adapters(self, _: web.Request) -> web.Response:
        await asyncio.sleep(self.list_s)
        return self._list_of(list(self.entries.values()))

    async def models(self, _: web.Request) -> web.Response:
        cards: list[dict[str, object]] = [
            {"id": name, "root": name, "parent": "base"} for name in self.entries
        ]
        return self._list_of([{"id": "base", "parent": None}, *cards])

    def _list_of(self, entries: list[dict[str, object]]) -> web.Response:
        self.lists.release()
        if self.list_body is not None:
            return web.Response(
                status=self.list_status, body=self.list_body, content_type="application/json"
            )
        return web.json_response({"object": "list", "data": entries})

    async def load(self, request: web.Request) -> web.Response:
        body = await request.json()
        name = body["lora_name"]
        self.calls.append(("load", name))
        await asyncio.sleep(self.load_s)
        if name in self.refused:
            status, error = self.refused[name]
            return web.json_response(error, status=status)
        if name in self.entries:
            return web.json_response({"error": {"message": f"{name} is loaded"}}, status=400)
        self.add(name, path=body["lora_path"])
        return web.Response(text="Success")

    async def unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        self.calls.append(("unload", name))
        if self.entries.pop(name, None) is None:
            return web.json_response({"error": {"message": "there is none"}}, status=404)
        return web.Response(text="Success")


@asynccontextmanager
async def adapter_engine(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[AdapterEngine]:
    """Serve an engine until the block ends."""
    engine = AdapterEngine()
    app = web.Application()
    app.router.add_get("/v1/adapters", engine.adapters)
    app.router.add_get("/v1/models", engine.models)
    app.router.add_post("/v1/load_lora_adapter", engine.load)
    app.router.add_post("/v1/unload_lora_adapter", engine.unload)
    async with served(app, host, port) as engine.address:
        yield engine
