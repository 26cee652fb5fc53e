"""Server-sent events as bytes: where they end, and whether the last one was DONE."""

import re

DONE = re.compile(rb"(?:^|\n)data: ?\[DONE\]\s*$")
DONE_EVENT = b"data: [DONE]\n\n"
# The usage event, which is sent before DONE if the client asked for it: its `choices` is empty.
NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
USAGE = re.compile(rb'"usage"\s*:\s*\{')
EVENT = re.compile(rb".*?(?:\r\n\r\n|\n\n)|.+\Z", re.DOTALL)
# Longer than any form of the DONE event.
TAIL_BYTES = 32
# Bound on the bytes held of an incomplete event; a larger one is passed on in pieces.
MAX_HELD_BYTES = 1 << 20


def without_usage_event(events: bytes) -> bytes:
    """Remove the usage event from a chunk of complete events."""
    if NO_CHOICES.search(events) is None:
        return events
    return b"".join(
        event
        for event in EVENT.findall(events)
        if not (NO_CHOICES.search(event) and USAGE.search(event))
    )


class SseBuffer:
    """Holds back incomplete events, so that a stream that is cut off never ends in half of one.

    Chunks are not parsed: engines send complete events, and then a chunk passes unchanged.
    """

    def __init__(self) -> None:
        self._held = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> bytes:
        """Add bytes of the stream. Returns the events that are complete now; empty if none is."""
        if self._held:
            chunk = self._held + chunk
            self._held = b""
        if not chunk.endswith((b"\n\n", b"\r\n\r\n")):
            end = max(chunk.rfind(b"\n\n") + 2, chunk.rfind(b"\r\n\r\n") + 4)
            if end < 4:  # neither was found: 1 or 3
                end = len(chunk) if len(chunk) > MAX_HELD_BYTES else 0
            chunk, self._held = chunk[:end], chunk[end:]
        if chunk:
            self._tail = chunk[-TAIL_BYTES:]
        return chunk

    def finish(self) -> bytes:
        """Return a DONE event that lacks its empty line, at the end of the stream; else empty."""
        if DONE.search(self._held):
            rest, self._held = self._held, b""
            self._tail = rest
            return rest
        return b""

    @property
    def is_done(self) -> bool:
        """Whether the last event that was returned is DONE."""
        return DONE.search(self._tail) is not None
