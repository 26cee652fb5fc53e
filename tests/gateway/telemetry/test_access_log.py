"""Access log: one line for each request, with its phases and outcome, and without its texts."""

import json
import logging

import pytest
from tests.gateway.engine_answers import DONE
from tests.gateway.support.engine_stub import Request, answer

from penstock.gateway.request_lifecycle.timeline import RequestPhase, Timeline, seconds_by_phase
from penstock.observability import logs
from penstock_engine.telemetry.logs import JsonFormatter

PHASES = ("receive_ms", "route_ms", "wait_ms", "connect_ms", "first_byte_ms", "stream_ms")
SECRET = "the prompt's own words"


@pytest.fixture
def access_lines(caplog):
    """`access_lines()` returns the fields of the lines so far."""
    name = "penstock.gateway.telemetry.access_log"
    caplog.set_level(logging.INFO, name)
    return lambda: [record.fields for record in caplog.records if record.name == name]


async def ask(front, **fields):
    status, _ = await front.ask(**{"messages": [{"role": "user", "content": SECRET}]} | fields)
    await front.idle()
    return status


async def test_a_stream_has_one_line_whose_phases_add_up(
    start_engine, start_gateway, access_lines, caplog
):
    engine = await start_engine()
    front = await start_gateway(engine)
    assert await ask(front) == 200
    (line,) = access_lines()
    assert line.keys() <= logs.ACCESS.keys()
    assert line["request_id"] == engine.requests[0].headers["x-request-id"]
    assert {name: line[name] for name in ("service", "revision", "pod", "route", "status")} == {
        "service": "default/chat",
        "revision": "r1",
        "pod": "default/engine-0",
        "route": "/v1/chat/completions",
        "status": 200,
    }
    assert (line["stream"], line["attempts"], line["completion_tokens"]) == (True, 1, 4)
    assert sum(line[name] for name in PHASES) == pytest.approx(line["total_ms"], abs=0.01)
    assert line["request_bytes"] == len(engine.requests[0].body)
    assert line["response_bytes"] > len(DONE)
    assert "reason" not in line
    whole = "".join(JsonFormatter().format(record) for record in caplog.records)
    assert SECRET not in whole


async def test_a_rejection_has_its_reason(start_gateway, access_lines):
    front = await start_gateway()
    assert await ask(front, model='x"\n{"level": "error"}') == 404
    (line,) = access_lines()
    assert (line["status"], line["attempts"]) == (404, 0)
    assert line["reason"] == 'the model `x"\n{"level": "error"}` does not exist'
    assert line.keys() & set(PHASES) == {"receive_ms", "route_ms"}
    assert "service" not in line


async def test_a_body_that_is_no_json_is_logged_without_its_text(start_gateway, access_lines):
    front = await start_gateway()
    headers = {"content-type": "application/json"}
    url = front.url + "/v1/completions"
    async with front.client.post(url, data=SECRET, headers=headers) as got:
        assert got.status == 400
    await front.idle()
    assert SECRET not in json.dumps(access_lines())


async def breaks_off(request: Request) -> None:
    await request.head()
    await request.chunk(b'data: {"choices": []}\n\n')
    request.reset()


async def test_a_stream_that_breaks_off_says_so(start_engine, start_gateway, access_lines):
    front = await start_gateway(await start_engine(breaks_off))
    assert await ask(front) == 200
    (line,) = access_lines()
    assert line["reason"] == "the engine's response was cut off"


async def fails(request: Request) -> None:
    await request.whole(b'{"error": {}}', "500 Internal Server Error")


async def test_a_retry_is_in_the_line_of_its_request(start_engine, start_gateway, access_lines):
    fleet = [await start_engine(fails), await start_engine(answer)]
    front = await start_gateway(*fleet)
    for _ in range(30):  # until the engine that fails is drawn
        assert await ask(front) == 200
    assert {line["attempts"] for line in access_lines()} == {1, 2}


async def test_the_access_log_can_be_turned_off(start_engine, start_gateway, access_lines):
    front = await start_gateway(await start_engine(), access_log=False)
    assert await ask(front) == 200
    assert access_lines() == []


def test_phases_of_several_attempts_are_added():
    now = 0.0
    timeline = Timeline(lambda: now)
    for at_s, phase in enumerate([*RequestPhase][1:5] + [*RequestPhase][2:], start=1):
        now = float(at_s)
        timeline.enter(phase)
    assert seconds_by_phase(timeline.intervals(10.0)) == {
        RequestPhase.RECEIVE: 1.0,
        RequestPhase.ROUTE: 1.0,
        RequestPhase.WAIT: 2.0,
        RequestPhase.CONNECT: 2.0,
        RequestPhase.FIRST_BYTE: 2.0,
        RequestPhase.STREAM: 2.0,
    }
