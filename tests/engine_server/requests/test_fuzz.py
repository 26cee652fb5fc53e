"""Runs a seeded part of benchmarks/engine/fuzz.py and of benchmarks/engine/malformed_requests.py."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks.engine import fuzz as fuzz_engine
from benchmarks.engine import malformed_requests
from fastapi import FastAPI

from penstock_engine.core.step import SequenceOutput, Step
from penstock_engine.options.config import EngineConfig
from penstock_engine.options.serve_options import ServeOptions
from penstock_engine.server.routes.openapi import openapi_document


@pytest.fixture(scope="module")
def small(launch: Any) -> tuple[httpx.Client, Any]:
    client, process = launch(
        "--max-model-len", "128", "--override-generation-config", '{"max_new_tokens": 4}'
    )
    return client, process


def test_answers_match_the_openapi_document(small: tuple[httpx.Client, Any]) -> None:
    client, process = small
    url = str(client.base_url).rstrip("/")
    findings = fuzz_engine.Findings()
    fuzz_engine.cases(url, 300, 5, findings)
    assert findings.wrong == {}
    assert {200, 400} <= findings.statuses.keys()
    assert fuzz_engine.leftovers(url) == []
    assert process.is_alive()


def test_malformed_requests_do_not_harm_the_engine(small: tuple[httpx.Client, Any]) -> None:
    client, process = small
    statuses, wrong = malformed_requests.campaign("127.0.0.1", client.base_url.port or 80)
    assert wrong == []
    assert sum(statuses.values()) > 400
    assert {200, 400, 404, 405} <= statuses.keys()
    assert process.is_alive()


def test_every_documented_route_exists(client: httpx.Client) -> None:
    """No documented route answers 404 or 405, and no undocumented method is allowed."""
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method in operations:
            assert client.request(method, path).status_code not in (404, 405)
        unsupported = client.delete(path)
        assert unsupported.status_code == 405
        allowed = set(unsupported.headers["allow"].lower().replace(" ", "").split(","))
        assert allowed - {"head"} <= operations.keys()


class IdleRunner:
    """A runner that is never used."""

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        return {}


async def test_every_route_is_documented(serve_runner: Any) -> None:
    """The document has the same routes as the one that FastAPI generates."""
    async with serve_runner(IdleRunner, enable_sleep_mode=True, enable_lora=True) as client:
        own = (await client.get("/openapi.json")).json()
        generated = FastAPI.openapi(client._transport.app._app._app)
    routes = [
        {(path, method) for path, operations in document["paths"].items() for method in operations}
        for document in (own, generated)
    ]
    assert routes[0] == routes[1]


def test_flags_add_routes_to_the_document() -> None:
    config = EngineConfig(model_dir=Path())
    plain = openapi_document(ServeOptions(), config)
    guarded = openapi_document(
        ServeOptions(api_keys=["k"], enable_sleep_mode=True), replace(config, enable_lora=True)
    )
    assert guarded["paths"].keys() - plain["paths"].keys() == {
        "/sleep", "/wake_up", "/is_sleeping",
        "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/adapters",
    }  # fmt: skip
    assert "401" in guarded["paths"]["/load"]["get"]["responses"]
    assert "401" not in plain["paths"]["/load"]["get"]["responses"]
    assert "security" not in guarded["paths"]["/health"]["get"]
