"""A seeded part of benchmarks/fuzz_engine.py, and of the malformed requests beside it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import fuzz_engine
import httpx
import malformed_requests
import pytest
from fastapi import FastAPI

from penstock_engine.config import EngineConfig
from penstock_engine.core.step import SequenceOutput, Step
from penstock_engine.serve_options import ServeOptions
from penstock_engine.server.openapi import openapi_document


@pytest.fixture(scope="module")
def small(launch: Any) -> tuple[httpx.Client, Any]:
    client, process = launch(
        "--max-model-len", "128", "--override-generation-config", '{"max_new_tokens": 4}'
    )
    return client, process


def test_what_is_described_holds(small: tuple[httpx.Client, Any]) -> None:
    client, process = small
    url = str(client.base_url).rstrip("/")
    findings = fuzz_engine.Findings()
    fuzz_engine.cases(url, 300, 5, findings)
    assert findings.wrong == {}
    assert {200, 400} <= findings.statuses.keys()
    assert fuzz_engine.leftovers(url) == []
    assert process.poll() is None


def test_malformed_requests_do_no_harm(small: tuple[httpx.Client, Any]) -> None:
    client, process = small
    statuses, wrong = malformed_requests.campaign("127.0.0.1", client.base_url.port or 80)
    assert wrong == []
    assert sum(statuses.values()) > 400
    assert {200, 400, 404, 405} <= statuses.keys()
    assert process.poll() is None


def test_every_route_is_described(client: httpx.Client) -> None:
    """And answers with something else than 404 or 405."""
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method in operations:
            assert client.request(method, path).status_code not in (404, 405)
        unsupported = client.delete(path)
        assert unsupported.status_code == 405
        allowed = set(unsupported.headers["allow"].lower().replace(" ", "").split(","))
        assert allowed - {"head"} <= operations.keys()


class Idle:
    def run(self, step: Step) -> dict[str, SequenceOutput]:
        return {}


async def test_nothing_goes_undescribed(around: Any) -> None:
    """Held against what FastAPI itself would describe."""
    async with around(Idle, enable_sleep_mode=True, enable_lora=True) as client:
        described = (await client.get("/openapi.json")).json()
        served = FastAPI.openapi(client._transport.app._app)
    routes = [
        {(path, method) for path, operations in document["paths"].items() for method in operations}
        for document in (described, served)
    ]
    assert routes[0] == routes[1]


def test_flags_add_to_the_description() -> None:
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
