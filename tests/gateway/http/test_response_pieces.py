"""Messages of a response, sent in pieces."""

import pytest

from penstock.gateway.http.response_pieces import (
    BODY_FOLLOWS,
    RESPONSE_PIECE_BYTES,
    send_in_pieces,
)

START = {"type": "http.response.start", "status": 200, "headers": []}
BODY = "http.response.body"


class Writes:
    """Tells the order in which a connection holds and sends."""

    def __init__(self, events):
        self.hold = lambda: events.append("hold")
        self.flush = lambda: events.append("flush")


async def sent(message):
    """Return what is sent for a message, in order: bytes, other messages, and calls that hold or flush."""
    events = []

    async def send(message):
        if message["type"] == BODY:
            events.append((bytes(message["body"]), message["more_body"]))
        else:
            events.append(message)

    async def drain():
        events.append("drain")

    await send_in_pieces(message, send, Writes(events), drain)
    return events


async def test_head_is_passed_on():
    assert await sent(START) == [START, "flush", "drain"]


async def test_head_is_held_if_the_body_follows():
    message = {**START, BODY_FOLLOWS: True}
    assert await sent(message) == ["hold", message]


@pytest.mark.parametrize("size", [1, RESPONSE_PIECE_BYTES])
async def test_small_chunk_is_one_piece(size):
    body = b"x" * size
    message = {"type": BODY, "body": body, "more_body": True}
    assert await sent(message) == [(body, True), "flush", "drain"]


async def test_end_follows_the_last_piece():
    body = b"a" * RESPONSE_PIECE_BYTES + b"b" * RESPONSE_PIECE_BYTES + b"c"
    pieces = [
        body[:RESPONSE_PIECE_BYTES],
        body[RESPONSE_PIECE_BYTES : 2 * RESPONSE_PIECE_BYTES],
        b"c",
    ]
    parts = [(piece, True) for piece in pieces] + [(b"", False)]
    expected = [event for part in parts for event in (part, "flush", "drain")]
    assert await sent({"type": BODY, "body": body, "more_body": False}) == expected
    assert await sent({"type": BODY, "body": body}) == expected


async def test_empty_messages():
    assert await sent({"type": BODY}) == [(b"", False), "flush", "drain"]
    assert await sent({"type": BODY, "more_body": True}) == []
