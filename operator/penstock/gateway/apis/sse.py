"""Server-sent events as bytes: where they end, which have data, and whether the last one was among them."""

import re
from collections.abc import Callable
from functools import cache

from penstock.core.routing.apis import Api

# Lines end with LF, CRLF or CR. An empty one ends an event.
EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
MAX_END_BYTES = max(map(len, EVENT_ENDS))
EVENT_END = b"|".join(EVENT_ENDS)
# The usage event, which is sent before DONE if the client asked for it: its `choices` is empty.
NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
USAGE = re.compile(rb'"usage"\s*:\s*\{')
# An event with its end, or the incomplete one after the last end. It may have a megabyte, so quantifiers that
# never need to give back are possessive.
EVENT = re.compile(rb"(?:[^\r\n]++|(?!%b)[\r\n])*+(?:%b|\Z)" % (EVENT_END, EVENT_END))
# Comments and fields that make no event by themselves.
WITHOUT_DATA = re.compile(rb"(?:[\r\n]++|(?::|event\b|id\b|retry\b)[^\r\n]*+[\r\n]++)++")
# Bound on the bytes held of an incomplete event; a larger one is passed on in pieces.
MAX_HELD_BYTES = 1 << 20
# Bytes of a stream that need no place in the total of held answers: those of 4096 streams are 256 MiB.
UNCOUNTED_BYTES = 64 << 10


def without_usage_event(events: bytes) -> bytes:
    """Remove the usage event from a chunk of complete events."""
    if NO_CHOICES.search(events) is None:
        return events
    return b"".join(
        event
        for event in EVENT.findall(events)
        if not (NO_CHOICES.search(event) and USAGE.search(event))
    )


def has_data(events: bytes) -> bool:
    """Whether a chunk is more than comments, by which an engine shows only that it is alive."""
    return WITHOUT_DATA.fullmatch(events) is None


def count_events(events: bytes) -> int:
    """Number of events with data that end in a chunk."""
    if b"\r" in events:
        events = events.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    *ended, _ = events.split(b"\n\n")
    found = filter(None, ended)
    return sum(event.startswith(b"data") or b"\ndata" in event for event in found)


def find_last_end(events: bytearray, start: int) -> int:
    """Position after the last event of which the end begins at `start` or later; 0 if there is none."""
    found = ((events.rfind(end, start), len(end)) for end in EVENT_ENDS)
    return max((at + length for at, length in found if at >= 0), default=0)


@cache
def _last_event_line(api: Api) -> re.Pattern[bytes]:
    """The line that only the last event of a stream has.

    An event may have a megabyte. So the pattern begins with a literal, which is found 100 times as fast as
    the start of a line, and looks back to it.
    """
    name, value = (part.encode() for part in api.last_event)
    return re.compile(rb"%b:(?<![^\r\n]%b:) ?(?:%b)\s*(?:[\r\n]|$)" % (name, name, value))


class SseBuffer:
    """Holds back incomplete events, so that a stream that is cut off never ends in half of one.

    Chunks are not parsed: engines send complete events, and then a chunk passes unchanged.

    api: of the stream. hold: called with the bytes that the stream holds now, to count them: incomplete
    events and those that were returned last. False: there is no room for more, and an incomplete event is
    passed on in pieces. is_done: whether the last event was among those that were returned. is_within_event:
    whether the last bytes that were returned did not end an event.
    """

    def __init__(self, api: Api, hold: Callable[[int], bool] = lambda _: True) -> None:
        self._last_event_line = _last_event_line(api)
        self._hold = hold
        self._held = bytearray()
        self.is_done = self.is_within_event = False

    def feed(self, chunk: bytes) -> bytes:
        """Add bytes of the stream. Returns the events that are complete now; empty if none is."""
        num_bytes = len(self._held) + len(chunk)
        has_room = self._hold(num_bytes if num_bytes > UNCOUNTED_BYTES else 0)
        if self._held or not chunk.endswith(EVENT_ENDS):
            # An end may have begun in the bytes before, which are not searched again.
            start = max(0, len(self._held) + 1 - MAX_END_BYTES)
            self._held += chunk
            end = find_last_end(self._held, start)
            if not end and (num_bytes > MAX_HELD_BYTES or not has_room):
                end = num_bytes
            chunk = bytes(self._held[:end])
            del self._held[:end]
        if chunk:
            self._note_returned(chunk)
        return chunk

    def finish(self) -> bytes:
        """Return the last event if it lacks only its empty line, at the end of the stream; else empty."""
        if self._last_event_line.search(self._held):
            rest, self._held = bytes(self._held), bytearray()
            self._note_returned(rest)
            return rest
        return b""

    def _note_returned(self, events: bytes) -> None:
        self.is_within_event = not events.endswith(EVENT_ENDS)
        self.is_done = self.is_done or self._last_event_line.search(events) is not None
