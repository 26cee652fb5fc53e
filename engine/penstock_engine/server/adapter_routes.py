"""HTTP routes that load, unload and list LoRA adapters."""

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel

from penstock_engine.core.errors import ModelError
from penstock_engine.server.adapter_folders import AdapterFolders
from penstock_engine.server.adapters import AdapterRegistry, Json
from penstock_engine.server.bodies import read_object, validate
from penstock_engine.server.errors import RequestError
from penstock_engine.server.preprocessing import read_body


class LoadRequest(BaseModel):
    lora_name: str
    lora_path: str
    load_inplace: bool = False


class UnloadRequest(BaseModel):
    lora_name: str


def adapter_routes(registry: AdapterRegistry, folders: AdapterFolders) -> APIRouter:
    """Returns vLLM's load and unload routes, and /v1/adapters, which shows where each adapter is."""
    router = APIRouter()

    @router.post("/v1/load_lora_adapter")
    async def load(http: Request) -> Response:
        request = validate(LoadRequest, read_object(await read_body(http)))
        folder = folders.resolve(request.lora_path)
        try:
            await registry.load(
                request.lora_name,
                folder.path,
                path=request.lora_path,
                replaces=request.load_inplace,
            )
        except ModelError as error:
            status = 404 if error.reason == "AdapterNotFound" else 400
            raise RequestError(status, str(error), param="lora_path") from error
        name = request.lora_name
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    @router.post("/v1/unload_lora_adapter")
    async def unload(http: Request) -> Response:
        request = validate(UnloadRequest, read_object(await read_body(http)))
        await registry.unload(request.lora_name)
        name = request.lora_name
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    @router.get("/v1/adapters")
    async def adapters() -> Json:
        return {"object": "list", "data": await registry.residency()}

    return router
