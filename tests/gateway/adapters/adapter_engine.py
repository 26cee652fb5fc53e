"""A fake engine with adapters: answers for those in its memory, and reads others again or loads them."""

import asyncio
import json

from tests.gateway.support.engine_stub import answer
from tests.support.gateway_snapshots import build

BASE = "chat"


class AdapterEngine:
    """Behavior of a fake engine.

    copies: state of each adapter by name: "host", "disk", or "vllm" for one that only /v1/models lists.
    errors: status and message of the answer to each load, by name. served: models of the requests that
    were answered. calls: loads and unloads. is_vllm: whether it has no /v1/adapters. gate: loads wait for it.
    answers: completions wait for it. load_s: duration of a load or an unload.
    """

    def __init__(self, *resident, slots=4, is_vllm=False, load_s=0.0):
        self.copies = dict.fromkeys(resident, "host")
        self.errors = {}
        self.is_vllm = is_vllm
        self.load_s = load_s
        self.slots = slots
        self.served, self.calls, self.paths = [], [], {}
        self.num_lists = 0
        self.is_answering_lists = True
        self.gate = asyncio.Event()
        self.gate.set()
        self.answers = asyncio.Event()
        self.answers.set()
        self.read_error = None

    async def __call__(self, request):
        if request.path == "/v1/adapters":
            await self._list(request)
        elif request.path == "/v1/models":
            await self._models(request)
        elif request.path == "/v1/load_lora_adapter":
            await self._load(request, json.loads(request.body))
        elif request.path == "/v1/unload_lora_adapter":
            name = json.loads(request.body)["lora_name"]
            self.calls.append(("unload", name))
            known = self.copies.pop(name, None) is not None
            await asyncio.sleep(self.load_s)
            await request.whole(b"Success", "200 OK" if known else "404 Not Found")
        else:
            await self._complete(request, json.loads(request.body)["model"])

    async def _list(self, request):
        self.num_lists += 1
        if not self.is_answering_lists:
            request.reset()
        elif self.is_vllm:
            await request.whole(b"{}", "404 Not Found")
        else:
            entries = [
                {"id": name, "tier": tier, "rank": 8, "bytes": 64, "requests": 0}
                for name, tier in self.copies.items()
            ]
            await request.whole(json.dumps({"data": entries}).encode())

    async def _models(self, request):
        models = [{"id": BASE}, *({"id": name, "parent": BASE} for name in self.copies)]
        await request.whole(json.dumps({"data": models}).encode())

    async def _load(self, request, fields):
        name = fields["lora_name"]
        self.calls.append(("load", name))
        self.paths[name] = fields["lora_path"]
        await self.gate.wait()
        await asyncio.sleep(self.load_s)
        if name in self.errors:
            status, message = self.errors[name]
            await request.whole(json.dumps({"error": {"message": message}}).encode(), status)
        elif name in self.copies:
            await request.whole(b'{"error": {"message": "loaded already"}}', "400 Bad Request")
        else:
            self.copies[name] = "host"
            await request.whole(b"Success", extra="x-load: 1\r\n")

    async def _complete(self, request, model):
        if model != BASE and model not in self.copies:
            await request.whole(b'{"error": {"message": "no such model"}}', "404 Not Found")
            return
        if model != BASE and self.copies[model] == "disk":
            if self.read_error:
                body = json.dumps({"error": {"message": self.read_error}}).encode()
                await request.whole(body, "503 Service Unavailable")
                return
            self.copies[model] = "host"
        self.served.append(model)
        await self.answers.wait()
        await answer(request)


class EndingEngine(AdapterEngine):
    """An engine that ends when it loads an adapter."""

    async def _load(self, request, fields):
        self.calls.append(("load", fields["lora_name"]))
        request.reset()


def adapter(name, *, model=None, namespace="default", service="chat", day=1, uri="pvc://a/sql"):
    """A LoraAdapter as the API server returns it."""
    metadata = {"name": name, "namespace": namespace}
    metadata["creationTimestamp"] = f"2026-01-{day:02}T00:00:00Z"
    source = {"uri": uri} | ({"name": model} if model else {})
    return {"metadata": metadata, "spec": {"serviceRef": {"name": service}, "model": source}}


SQL = adapter("sql", model="chat-sql")
(BUILT,) = build([], [], [], [SQL]).adapters
NAME = BUILT.engine_name


async def ask(front, model="chat-sql", **fields):
    status, body = await front.ask(model=model, stream=False, **fields)
    return status, json.loads(body)
