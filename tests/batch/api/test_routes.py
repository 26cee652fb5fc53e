"""The batch server's routes are those that the gateway relays."""

from pathlib import Path
from typing import Any

from penstock.batch.api.batches import BatchRoutes
from penstock.batch.api.files import FileRoutes
from penstock.batch.settings import BatchSettings
from penstock.core.routing.apis import BATCH_ROUTES


def test_gateway_and_batch_server_have_the_same_routes() -> None:
    settings = BatchSettings(gateway_url="", token_file=Path(), store="")
    unused: Any = None
    served = (
        *FileRoutes(unused, unused, settings, lambda: 0.0).routes(),
        *BatchRoutes(unused, unused, unused, settings, lambda: 0.0).routes(),
    )
    relayed = {(path, method) for path, each in BATCH_ROUTES.items() for method in each.methods}
    assert {(each.path, each.method) for each in served} == relayed
