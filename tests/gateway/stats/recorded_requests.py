"""Requests of a manual clock, recorded as the gateway records them."""

from tests.gateway.engine_answers import EVENT
from tests.gateway.support.slots import slot_at

from penstock.core.routing.charge import Ending
from penstock.core.routing.pick import Endpoint

POD = "default/engine"
ENGINE = Endpoint(POD, "10.0.0.1:8000", "r1")
USAGE = (
    b'{"usage":{"prompt_tokens":300,"completion_tokens":%d,'
    b'"prompt_tokens_details":{"cached_tokens":256}}}'
)


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def endpoint(name, revision="r1"):
    return Endpoint(f"default/{name}", "10.0.0.1:8000", revision)


def stream(record, clock, *, queued_s=1.0, first_s=0.5, gaps_s=(1.0, 1.0), reservation=None):
    """Stream a response with one token more than `gaps_s` has items."""
    clock.now_s += queued_s
    with record.in_flight(ENGINE, reservation or slot_at(ENGINE)):
        clock.now_s += first_s
        record.start_response(is_stream=True)
        record.add_chunk(EVENT)
        for gap_s in gaps_s:
            clock.now_s += gap_s
            record.add_chunk(EVENT)
        record.add_chunk(b"data: " + USAGE % (len(gaps_s) + 1) + b"\n\ndata: [DONE]\n\n")


def whole(record, clock, body, *, took_s=1.5):
    with record.in_flight(ENGINE, slot_at(ENGINE)):
        clock.now_s += took_s
        record.start_response(is_stream=False)
        record.add_chunk(body)


def close(record, ending=Ending.ANSWERED, serving=()):
    """End the request, and return its outcome."""
    record.end.ending = ending
    return record.close(serving)
