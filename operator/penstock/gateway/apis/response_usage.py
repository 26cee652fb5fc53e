"""Reads token usage and errors from the bytes of a response, without parsing it.

The `usage` field decides if the response has one. Without it each event of a stream that has data counts
as one token, except for the DONE event and, in a chat, the first one. That is exact for an engine that sends
one token per event, and too low for one that sends several: with speculative decoding, or when a
character takes more than one token.
"""

import re

from penstock.core.routing.charge import CHARGES, ending_of
from penstock.gateway.apis.prompt_text import BYTES_PER_TOKEN
from penstock.gateway.apis.sse import count_events

# Quotes inside text are escaped in JSON, so that text never matches these.
PROMPT_TOKENS = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,9})')
CACHED_TOKENS = re.compile(rb'"cached_tokens"\s*:\s*(\d{1,9})')
COMPLETION_TOKENS = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,9})')
# White space alone is no text.
TEXT = re.compile(
    rb'"(?:content|text|delta|reasoning|reasoning_content|refusal|arguments)"\s*:\s*'
    rb'"(?:(?:\\[nrt])++|\s++)*+[^"\s]'
    rb'|"tool_calls"\s*:\s*\[\s*\{'
)
# The error event of an engine that fails after the first byte: chat and completions, then responses.
# Each begins with a literal, as patterns of sse.py do.
ERROR_EVENTS = (
    re.compile(rb'data:(?<![^\r\n]data:) ?\{\s*(?:"type"\s*:\s*"error"\s*,\s*)?"error"\s*:\s*[{"]'),
    re.compile(rb"event:(?<![^\r\n]event:) ?response\.failed\s"),
)
CODE = re.compile(rb'"code"\s*:\s*(\d{3})\b')
# Finish reasons of an answer that vLLM aborted. It sends no error event then.
ABORTED = re.compile(rb'"finish_reason"\s*:\s*"(?:abort|error)"')


def error_status(events: bytes) -> int | None:
    """HTTP status of the first error event: 500 if it has no code, None without such an event."""
    errors = [found.start() for each in ERROR_EVENTS if (found := each.search(events))]
    if not errors:
        return None
    code = CODE.search(events, min(errors))
    return 500 if code is None else int(code[1])


class ResponseUsage:
    """Token counts and errors of one response, from its bytes.

    overhead_events: events of a stream that carry no token. has_text: whether there is any text or tool
    call. has_error: whether a stream has an error event, or the engine aborted the answer.
    has_engine_error: whether it did, or the code of the event is charged to the engine as the same status
    is; a 504 is not, as clients may set deadlines. prompt_tokens: None without usage.
    """

    def __init__(self, *, is_stream: bool, overhead_events: int) -> None:
        self._is_stream = is_stream
        self._overhead_events = overhead_events
        self._events = 0
        self._bytes = 0
        self._completion_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens = 0
        self.has_text = self.has_error = self.has_engine_error = False

    def feed(self, chunk: bytes) -> None:
        """Count a part of the response: complete events of a stream, any bytes of another response."""
        self._bytes += len(chunk)
        if self._is_stream:
            self._events += count_events(chunk)
            if (status := error_status(chunk)) is not None:
                self.has_error = True
                self.has_engine_error = CHARGES[ending_of(status)].engine is not None
        if ABORTED.search(chunk) is not None:
            self.has_error = self.has_engine_error = True
        if not self.has_text:
            self.has_text = TEXT.search(chunk) is not None
        if b'"completion_tokens"' in chunk:
            if completion := COMPLETION_TOKENS.findall(chunk):
                self._completion_tokens = int(completion[-1])
            if prompt := PROMPT_TOKENS.findall(chunk):
                self.prompt_tokens = int(prompt[-1])
            if cached := CACHED_TOKENS.findall(chunk):
                self.cached_tokens = int(cached[-1])

    @property
    def output_tokens(self) -> int:
        """Tokens generated so far: from usage, else estimated from events or bytes, and then at least 1."""
        if self._completion_tokens is not None:
            return self._completion_tokens
        if self._is_stream:
            return max(1, self._events - self._overhead_events)
        return max(1, self._bytes // BYTES_PER_TOKEN)
