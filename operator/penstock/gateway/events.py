"""Server-sent events as bytes: where they end, and whether the last one was the last word."""

import re

DONE = re.compile(rb"(?:^|\n)data: ?\[DONE\]\s*$")
DONE_EVENT = b"data: [DONE]\n\n"
# Longer than any form of the DONE event.
TAIL_BYTES = 32
# An event larger than this is passed on in pieces.
MAX_HELD_BYTES = 1 << 20


class EventStream:
    """Passes whole events on, so that a cut never leaves a client with half of one.

    Chunks are not looked into: engines send whole events, and then a chunk is passed on as it is.
    """

    def __init__(self) -> None:
        self._held = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> bytes:
        """The whole events that there are now; maybe none."""
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
        """What is left at the end of the stream, if it is the DONE event without its empty line."""
        if DONE.search(self._held):
            rest, self._held = self._held, b""
            self._tail = rest
            return rest
        return b""

    @property
    def is_done(self) -> bool:
        return DONE.search(self._tail) is not None
