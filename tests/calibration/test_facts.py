"""Facts of an engine whose answers are not an engine's."""

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from penstock.calibration.facts import facts
from penstock.calibration.probe import ProbeFailed
from penstock_engine.contract.metric_specs import CACHE_CONFIG, MAX_SEQS

CACHE = f'{CACHE_CONFIG.name}{{block_size="16",num_gpu_blocks="64"}} 1\n'


@pytest.mark.parametrize("value", ["+Inf", "NaN", "many"])
async def test_an_impossible_number_is_refused_with_the_url(value: str) -> None:
    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "chat", "max_model_len": 512}]})

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=f"{CACHE}{MAX_SEQS.name} {value}\n")

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_get("/metrics", metrics)
    async with (
        TestServer(app) as server,
        httpx.AsyncClient(base_url=str(server.make_url(""))) as client,
    ):
        with pytest.raises(ProbeFailed, match="does not answer like an engine"):
            await facts(client)
