"""A stored response belongs to the tenant that created it, at every gateway."""

import json

import pytest
from tests.gateway.proxy.test_stored_responses import StoringEngine
from tests.support.gateway_callers import api_key, bearer, let_in, tenant

from penstock.core.tenants.tenant import Access

OWNER, OTHER = api_key(1), api_key(2)
PATH = "/v1/responses"


@pytest.fixture
async def fronts(start_gateway, start_engine):
    """Two gateways with the same engine and tenants."""
    engine = await start_engine(StoringEngine())
    made = [await start_gateway(engine) for _ in range(2)]
    for front in made:
        let_in(
            front.gateway,
            tenant("owner", Access("default")),
            tenant("other", Access("default")),
            keys={"owner": OWNER, "other": OTHER},
        )
    return made


async def ask(front, method, path, key, **fields):
    body = {"json": {"model": "chat", "stream": False} | fields} if method == "POST" else {}
    headers = {} if key is None else bearer(key)
    async with front.client.request(method, front.url + path, headers=headers, **body) as got:
        return got.status, json.loads(await got.read())


async def test_other_tenants_find_no_response_at_any_gateway(fronts):
    status, created = await ask(fronts[0], "POST", PATH, OWNER)
    assert status == 200
    found = created["id"]
    unknown = found[:5] + "0" * 64
    for front in fronts:
        assert await ask(front, "GET", f"{PATH}/{found}", OWNER) == (200, {"id": found})
        for method, path in (
            ("GET", ""),
            ("DELETE", ""),
            ("GET", "/input_items"),
            ("POST", "/cancel"),
        ):
            status, body = await ask(front, method, f"{PATH}/{found}{path}", OTHER)
            wanted = await ask(front, method, f"{PATH}/{unknown}{path}", OTHER)
            assert status == 404
            assert json.dumps(body).replace(found, unknown) == json.dumps(wanted[1])
        status, body = await ask(front, "POST", PATH, OTHER, previous_response_id=found)
        assert (status, body["error"]["code"]) == (404, "response_not_found")
        assert (await ask(front, "POST", PATH, OWNER, previous_response_id=found))[0] == 200


async def test_an_open_gateway_finds_no_response_of_a_tenant(fronts):
    _, created = await ask(fronts[0], "POST", PATH, OWNER)
    front = fronts[1]
    front.gateway.state.authenticator.tenants.publish((), is_open=True)
    assert (await ask(front, "GET", f"{PATH}/{created['id']}", None))[0] == 404
    _, of_anyone = await ask(front, "POST", PATH, None)
    assert (await ask(front, "GET", f"{PATH}/{of_anyone['id']}", None))[0] == 200
    assert (await ask(fronts[0], "GET", f"{PATH}/{of_anyone['id']}", OWNER))[0] == 404
