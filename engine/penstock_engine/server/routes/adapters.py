"""Routes that load, unload and list LoRA adapters, with vLLM's bodies and answers."""

import re

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from penstock_engine.core.errors import ModelError
from penstock_engine.server.adapters.folders import AdapterFolders
from penstock_engine.server.adapters.memory import MAX_ADAPTER_WAIT_S
from penstock_engine.server.adapters.registry import AdapterRegistry
from penstock_engine.server.async_engine import now_s
from penstock_engine.server.requests.bodies import read_object, validate
from penstock_engine.server.requests.request_model import RequestModel
from penstock_engine.server.transport.arriving_bodies import ArrivingBodies
from penstock_engine.server.transport.deadlines import deadline_s
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.json_text import Json

# Reasons for which there is no adapter at the path.
NOT_FOUND = ("AdapterNotFound", "ConfigMissing", "OutsideLoraDir", "WeightsMissing")


class LoadRequest(RequestModel):
    lora_name: str
    lora_path: str
    load_inplace: bool = False


class UnloadRequest(RequestModel):
    lora_name: str


def adapter_routes(
    registry: AdapterRegistry, folders: AdapterFolders, bodies: ArrivingBodies
) -> APIRouter:
    """Returns vLLM's load and unload routes, and /v1/adapters, which shows where each adapter is."""
    router = APIRouter()

    @router.post("/v1/load_lora_adapter")
    async def load(http: Request) -> Response:
        timeout_s = _timeout_s(http)
        request = validate(LoadRequest, read_object(await bodies.read(http)))
        folder = folders.resolve(request.lora_path)
        try:
            await registry.load(
                request.lora_name, folder, path=request.lora_path,
                replaces=request.load_inplace, timeout_s=timeout_s,
            )  # fmt: skip
        except ModelError as error:
            raise _refusal(error) from error
        name = request.lora_name
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    @router.post("/v1/unload_lora_adapter")
    async def unload(http: Request) -> Response:
        request = validate(UnloadRequest, read_object(await bodies.read(http)))
        await registry.unload(request.lora_name)
        name = request.lora_name
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    @router.get("/v1/adapters")
    async def adapters() -> Json:
        return await registry.residency()

    return router


def _refusal(error: ModelError) -> RequestError:
    """The answer to the load of an adapter that cannot be served. RankTooLarge becomes rank_too_large."""
    status = 404 if error.reason in NOT_FOUND else 400
    code = re.sub(r"\B([A-Z])", r"_\1", error.reason).lower()
    return RequestError(status, str(error), param="lora_path", code=code)


def _timeout_s(http: Request) -> float:
    """Time limit of a load in seconds. Raises RequestError if a header is not a number."""
    arrival_s = now_s()
    until_s = deadline_s(http.headers, arrival_s, MAX_ADAPTER_WAIT_S)
    return MAX_ADAPTER_WAIT_S if until_s is None else until_s - arrival_s
