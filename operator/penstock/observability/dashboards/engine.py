"""Engine internals: requests by phase, steps, KV cache, speculation, offloading, GPU and memory."""

from penstock.observability.dashboards import (
    engine_kv_cache,
    engine_machine,
    engine_requests,
    engine_steps,
    variables,
)
from penstock.observability.dashboards.board import Board


def board() -> Board:
    return Board(
        "engine",
        "Engine",
        "Requests, steps, KV cache and resources of engines.",
        (
            variables.datasource(),
            variables.namespace(),
            variables.service(),
            variables.revision(),
            variables.pod(),
        ),
        (
            engine_requests.requests(),
            engine_steps.steps(),
            engine_kv_cache.kv_cache(),
            engine_kv_cache.offloading(),
            engine_steps.speculation(),
            engine_requests.answers(),
            engine_machine.machine(),
        ),
    )
