"""Every route of Penstock's engine is relayed, answered by the gateway, or kept from clients for a reason."""

from penstock.core.routing.apis import APIS, STORED_RESPONSE_ROUTES
from penstock_engine.server.routes import openapi

ANSWERED_BY_THE_GATEWAY = {"/v1/models"}
NOT_FOR_CLIENTS = {
    "/health": "a probe of one engine",
    "/ping": "a probe of one engine",
    "/ready": "a probe of one engine",
    "/metrics": "numbers of one engine, with the loads of others",
    "/load": "a number of one engine",
    "/version": "of one engine, and of use to attackers",
    "/reset_prefix_cache": "slows down the requests of others",
    "/sleep": "stops the answers to others",
    "/wake_up": "the operator's",
    "/is_sleeping": "the operator's",
    "/tokenizer_info": "names no model, by which a service is found",
    "/v1/load_lora_adapter": "the gateway loads adapters",
    "/v1/unload_lora_adapter": "the gateway unloads adapters",
    "/v1/adapters": "adapters of one engine, with their folders",
}
"""Routes that clients do not reach, with the reason."""
SPECS = (
    *openapi.ROUTES, *openapi.SLEEP_ROUTES, *openapi.TOKENIZER_ROUTES, *openapi.ADAPTER_ROUTES,
    *openapi.RESPONSE_ROUTES,
)  # fmt: skip


def test_every_route_of_the_engine_is_accounted_for():
    relayed = {api.path for api in APIS} | set(STORED_RESPONSE_ROUTES)
    rest = {spec.path for spec in SPECS} - relayed
    assert rest == ANSWERED_BY_THE_GATEWAY | set(NOT_FOR_CLIENTS)
    assert not relayed & set(NOT_FOR_CLIENTS)


async def test_routes_that_are_not_for_clients_are_a_404(start_engine, start_gateway):
    engine = await start_engine()
    front = await start_gateway(engine)
    for path in NOT_FOR_CLIENTS:
        for method in ("GET", "POST"):
            async with front.client.request(
                method, front.url + path, json={"model": "chat"}
            ) as got:
                assert (path, got.status) == (path, 404)
    assert not engine.requests
