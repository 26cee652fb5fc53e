"""Serves the last placement of each service's adapters over HTTP, for `kubectl penstock adapters`."""

import json
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from penstock.clients.kubernetes.informer import Key
from penstock.core.adapters.placement_record import PlacementRecord
from penstock.core.formats.serialization import serialize

PATH = "/placements/{namespace}/{name}"

Source = Callable[[Key], PlacementRecord | None]


class Placements:
    """HTTP endpoint of the placements. Each request builds its record.

    source: returns the record of a service, None if there is none; set by the leading replica.
    """

    def __init__(self) -> None:
        self.source: Source = lambda _: None

    async def get(self, request: Request) -> Response:
        """Answer with the record as JSON, or 404."""
        key = request.path_params["namespace"], request.path_params["name"]
        record = self.source(key)
        if record is None:
            text = (
                f"the operator places no adapters of {'/'.join(key)}: does the service exist, has it "
                "spec.engine.lora, and is one of its engines ready?"
            )
            return PlainTextResponse(text, 404)
        text = json.dumps(serialize(record), separators=(",", ":"))
        return Response(f"{text}\n", media_type="application/json")
