"""Reads token usage and errors from the bytes of a response, without parsing it.

The `usage` field decides if the response has one. Without it each event of a stream that has data counts
as one token, except for the DONE event and, in a chat, the first one. That is exact for an engine that sends
one token per event, and too low for one that sends several: with speculative decoding, or when a
character takes more than one token.
"""

import re
from functools import cache

from penstock.core.routing.apis import Api, UsageFields
from penstock.core.routing.charge import CHARGES, ending_of
from penstock.core.routing.prompt_kinds import BYTES_PER_TOKEN
from penstock.gateway.apis.sse import count_events

# White space alone is no text.
TEXT = re.compile(
    rb'"(?:content|text|delta|thinking|reasoning|reasoning_content|refusal|arguments|partial_json)"\s*:\s*'
    rb'"(?:(?:\\[nrt])++|\s++)*+[^"\s]'
    rb'|"tool_calls"\s*:\s*\[\s*\{'
    rb'|"type"\s*:\s*"(?:tool_use|function_call|custom_tool_call)"'
)
# The error event of an engine that fails after the first byte: chat and completions, then responses.
# Each begins with a literal, as patterns of sse.py do.
ERROR_EVENTS = (
    re.compile(rb'data:(?<![^\r\n]data:) ?\{\s*(?:"type"\s*:\s*"error"\s*,\s*)?"error"\s*:\s*[{"]'),
    re.compile(rb"event:(?<![^\r\n]event:) ?response\.failed\s"),
)
CODE = re.compile(rb'"code"\s*:\s*(\d{3})\b')
# Codes and types in words, of APIs whose errors have no status, with the status that engines mean by them.
# Other words are the engine's failure.
WORDS = re.compile(
    rb'"(?:code|type)"\s*:\s*"(deadline_exceeded|invalid_request_error|not_found_error|overloaded_error'
    rb'|rate_limit_error|request_too_large|timeout_error)"'
)
STATUSES = {
    b"deadline_exceeded": 504, b"invalid_request_error": 400, b"not_found_error": 404,
    b"overloaded_error": 503, b"rate_limit_error": 429, b"request_too_large": 413, b"timeout_error": 504,
}  # fmt: skip
# Finish reasons of an answer that vLLM aborted. It sends no error event then.
ABORTED = re.compile(rb'"finish_reason"\s*:\s*"(?:abort|error)"')


def error_status(events: bytes) -> int | None:
    """HTTP status of the first error event: 500 if it has no code, None without such an event."""
    errors = [found.start() for each in ERROR_EVENTS if (found := each.search(events))]
    if not errors:
        return None
    start = min(errors)
    if (code := CODE.search(events, start)) is not None:
        return int(code[1])
    word = WORDS.search(events, start)
    return 500 if word is None else STATUSES[word[1]]


@cache
def _count_pattern(name: str) -> re.Pattern[bytes]:
    """A field with a number. Quotes inside text are escaped in JSON, so that text never matches it."""
    return re.compile(rb'"%b"\s*:\s*(\d{1,9})' % name.encode())


def _last_count(name: str, chunk: bytes) -> int | None:
    """The last number of a field in a chunk; None if it has none."""
    found = _count_pattern(name).findall(chunk)
    return int(found[-1]) if found else None


class ResponseUsage:
    """Token counts and errors of one response of an API, from its bytes.

    has_text: whether there is any text or tool call. has_error: whether a stream has an error event, or the
    engine aborted the answer. has_engine_error: whether it did, or the code of the event is charged to the
    engine as the same status is; a 504 is not, as clients may set deadlines. prompt_tokens: None without
    usage. cached_tokens: None of an API that does not report them. has_cached: whether the response does.
    """

    def __init__(self, api: Api, *, is_stream: bool) -> None:
        self._api = api
        # A chunk with this name has the response's usage.
        usage = api.usage
        self._mark = b"" if usage is None else b'"%b"' % (usage.output or usage.prompt).encode()
        self._is_stream = is_stream
        self._events = 0
        self._bytes = 0
        self._output_tokens: int | None = None if api.generates else 0
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None if usage is None or usage.cached is None else 0
        self.has_text = self.has_error = self.has_engine_error = self.has_cached = False

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
        if self._api.usage is not None and self._mark in chunk:
            self._read_usage(chunk, self._api.usage)

    def _read_usage(self, chunk: bytes, names: UsageFields) -> None:
        if names.output and (output := _last_count(names.output, chunk)) is not None:
            self._output_tokens = output
        cached = None if names.cached is None else _last_count(names.cached, chunk)
        if cached is not None:
            self.cached_tokens, self.has_cached = cached, True
        if (prompt := _last_count(names.prompt, chunk)) is not None:
            self.prompt_tokens = prompt + (cached or 0) * names.is_cached_apart

    @property
    def is_empty(self) -> bool:
        """Whether the API generates and the response has nothing of it: no text, tool call or error."""
        return self._api.generates and not self.has_text and not self.has_error

    @property
    def generated_tokens(self) -> int | None:
        """Output tokens of the response; None for an API that generates none."""
        return self.output_tokens if self._api.generates else None

    @property
    def output_tokens(self) -> int:
        """Tokens generated so far: from usage, else estimated from events or bytes, and then at least 1.

        Always 0 of an API that generates none.
        """
        if self._output_tokens is not None:
            return self._output_tokens
        if self._is_stream:
            return max(1, self._events - self._api.overhead_events)
        return max(1, self._bytes // BYTES_PER_TOKEN)
