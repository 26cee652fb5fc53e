"""Server-sent events as bytes: where they end, which have data, and whether DONE was among them."""

import re

# Lines end with LF, CRLF or CR. An empty one ends an event.
EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
EVENT_END = b"|".join(EVENT_ENDS)
DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]\s*(?:[\r\n]|$)")
DONE_EVENT = b"data: [DONE]\n\n"
# The usage event, which is sent before DONE if the client asked for it: its `choices` is empty.
NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
USAGE = re.compile(rb'"usage"\s*:\s*\{')
EVENT = re.compile(rb".*?(?:%b)|.+\Z" % EVENT_END, re.DOTALL)
DATA_LINE = re.compile(rb"(?:^|[\r\n])data")
# The start of an event whose first line is not its data.
OTHER_FIRST_LINE = re.compile(rb"(?:\A|%b)(?!data|\Z)" % EVENT_END)
# Comments and fields that make no event by themselves.
WITHOUT_DATA = re.compile(rb"(?:(?:(?::|event\b|id\b|retry\b)[^\r\n]*)?[\r\n])+")
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


def has_data(events: bytes) -> bool:
    """Whether a chunk is more than comments, by which an engine shows only that it is alive."""
    return WITHOUT_DATA.fullmatch(events) is None


def count_events(events: bytes) -> int:
    """Number of events with data that end in a chunk."""
    num_ends = sum(events.count(end) for end in EVENT_ENDS)
    # As engines send them: there is nothing to search for.
    is_one = num_ends == 1 and events.startswith(b"data")
    if is_one or OTHER_FIRST_LINE.search(events) is None:
        return num_ends
    found = EVENT.findall(events)
    return sum(DATA_LINE.search(e) is not None and e.endswith(EVENT_ENDS) for e in found)


class SseBuffer:
    """Holds back incomplete events, so that a stream that is cut off never ends in half of one.

    Chunks are not parsed: engines send complete events, and then a chunk passes unchanged.

    is_done: whether DONE was among the events that were returned. is_within_event: whether the last bytes
    that were returned did not end an event.
    """

    def __init__(self) -> None:
        self._held = b""
        self.is_done = self.is_within_event = False

    def feed(self, chunk: bytes) -> bytes:
        """Add bytes of the stream. Returns the events that are complete now; empty if none is."""
        if self._held:
            chunk = self._held + chunk
            self._held = b""
        if not chunk.endswith(EVENT_ENDS):
            end = max(
                (chunk.rfind(each) + len(each) for each in EVENT_ENDS if each in chunk),
                default=len(chunk) if len(chunk) > MAX_HELD_BYTES else 0,
            )
            chunk, self._held = chunk[:end], chunk[end:]
        if chunk:
            self._note_returned(chunk)
        return chunk

    def finish(self) -> bytes:
        """Return a DONE event that lacks its empty line, at the end of the stream; else empty."""
        if DONE.search(self._held):
            rest, self._held = self._held, b""
            self._note_returned(rest)
            return rest
        return b""

    def _note_returned(self, events: bytes) -> None:
        self.is_within_event = not events.endswith(EVENT_ENDS)
        self.is_done = self.is_done or (b"[DONE]" in events and DONE.search(events) is not None)
